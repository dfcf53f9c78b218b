//! The control node of a lock: the contenders that are asked to step down, and the clean releases.

use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{CleanRelease, Control, LONGEST_CONTROL_DATA, YieldRequest};
use zookeeper_client::Error;

use super::outcome::{Ending, TreeError, failed};
use super::{TRIES, Tree};
use crate::lock_key::LockKey;

impl Tree {
    /// Asks contenders to step down, unless exactly that was asked already. Keeps everything else that the control node
    /// holds. True when the request is new.
    ///
    /// # Errors
    /// When the control node is missing or belongs to another identity, or the connection is lost.
    pub async fn request_yield(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        request: &YieldRequest,
    ) -> Result<bool, TreeError> {
        let path = self.layout.control(key);
        for _ in 0..TRIES {
            let (data, version) = control(connection, &path)
                .await
                .map_err(|error| failed(&path, error))?;
            let before = Control::parse(&data);
            if request.contenders.iter().all(|contender| before.asks(contender)) {
                return Ok(false);
            }
            let control = before.clone().with_yield(request.clone());
            // All that a control node has room for.
            let asked = |control: &Control| control.yield_request.clone().map(|request| request.contenders);
            if asked(&control) == asked(&before) {
                return Ok(false);
            }
            match connection
                .set_data(&path, &control.to_data(), Some(version))
                .await
            {
                Ok(_) => return Ok(true),
                // A release came between.
                Err(Error::BadVersion) => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(failed(&path, Error::BadVersion))
    }

    /// How each of these former holders, by name and token, ended.
    ///
    /// # Errors
    /// When the control node belongs to another identity, or the connection is lost.
    pub(crate) async fn endings(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        gone: &[CleanRelease],
    ) -> Result<Vec<Ending>, TreeError> {
        let path = self.layout.control(key);
        let data = match control(connection, &path).await {
            Ok((data, _)) => data,
            // The records of releases are lost with the node.
            Err(Error::NoNode) => return Ok(vec![Ending::Unknown; gone.len()]),
            Err(error) => return Err(failed(&path, error)),
        };
        let control = Control::parse(&data);
        let ending = |one: &CleanRelease| match (&control, &one.contender) {
            (control, name) if control.was_lost(name, one.token) => Ending::Lost,
            (control, name) if !control.released(name) => Ending::Unknown,
            (control, name) if control.asks(name) => Ending::HandedOver,
            _ => Ending::Released,
        };
        Ok(gone.iter().map(ending).collect())
    }
}

/// Reads a control node, and its version. Pods write there: data longer than theirs can be are not read, and count as
/// empty.
async fn control(connection: &Onlooker, path: &str) -> Result<(Vec<u8>, i32), Error> {
    let stat = connection.check_stat(path).await?.ok_or(Error::NoNode)?;
    if usize::try_from(stat.data_length).is_ok_and(|length| length > LONGEST_CONTROL_DATA) {
        return Ok((Vec::new(), stat.version));
    }
    let (data, stat) = connection.get_data(path).await?;
    Ok((data, stat.version))
}
