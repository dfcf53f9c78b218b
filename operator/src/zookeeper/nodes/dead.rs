//! Removes a contender whose machine is known to be off.

use lockkeeper_lock::FencingToken;
use lockkeeper_lock::zookeeper::Onlooker;
use zookeeper_client::Error;

use super::Tree;
use super::outcome::{TreeError, failed};
use crate::lock_key::LockKey;

impl Tree {
    /// Removes a contender if it is the one with this token, and nobody writes to it meanwhile. True when it was there
    /// and is gone.
    ///
    /// # Errors
    /// When the lock root belongs to another identity, or the connection is lost.
    pub async fn remove_contender(
        &self,
        connection: &Onlooker,
        key: &LockKey,
        contender: &str,
        token: FencingToken,
    ) -> Result<bool, TreeError> {
        let path = format!("{}/{contender}", self.layout.lock(key));
        let found = connection.check_stat(&path).await;
        let Some(stat) = found.map_err(|error| failed(&path, error))? else {
            return Ok(false);
        };
        if stat.czxid != token.0 {
            return Ok(false);
        }
        match connection.delete(&path, Some(stat.version)).await {
            Ok(()) => Ok(true),
            // Its session ended, or it has changed: then the picture changes, too.
            Err(Error::NoNode | Error::BadVersion) => Ok(false),
            Err(error) => Err(failed(&path, error)),
        }
    }
}
