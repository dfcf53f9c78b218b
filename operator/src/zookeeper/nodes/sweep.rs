//! Removes the children of the root of a deleted lock that are no places in its queue: notes, roots of other locks,
//! litter. A client that may create contenders may create such children, and they would block the deletion of the
//! lock's object and of its namespace.

use futures_util::future::try_join_all;
use lockkeeper_lock::ensemble::{EnsembleError, is_ephemeral};
use lockkeeper_lock::is_contender;
use lockkeeper_lock::zookeeper::Onlooker;
use tokio::sync::Semaphore;
use zookeeper_client::Error;

use super::outcome::{Removal, TreeError, failed};
use crate::zookeeper::children::{CHILDREN_OF_NAMESPACE, LONGEST_LIST, PATIENCE_FOR_LIST, shown};

/// Children that are removed in one try, with two requests each: a matter of a second, also with slow disks, and less than
/// another process has for an answer (`session`).
const MOST: usize = 250;

/// Of these, at once: a server works on the requests of one connection in order.
const AT_ONCE: usize = 32;

/// One list at a time: each takes a connection of its own, and its names memory.
static LISTING: Semaphore = Semaphore::const_new(1);

/// Removes the children of a lock root, unless one of them is, or may be, a place in the queue. Then children that were
/// looked at before may be gone: no contender needs them.
///
/// # Errors
/// When the connection is lost, or the children cannot be listed.
pub(super) async fn sweep(connection: &Onlooker, root: &str) -> Result<Removal, TreeError> {
    let fail = |error| failed(root, error);
    let Some(stat) = connection.check_stat(root).await.map_err(fail)? else {
        return Ok(Removal::Done);
    };
    let count = usize::try_from(stat.num_children).unwrap_or(0);
    if count > CHILDREN_OF_NAMESPACE {
        return Ok(Removal::Left(format!(
            "{root} has {count} children, and the operator lists {CHILDREN_OF_NAMESPACE} at most"
        )));
    }
    let listing = LISTING.acquire().await;
    let names = match connection
        .list_within(root, LONGEST_LIST, PATIENCE_FOR_LIST)
        .await
    {
        Ok(Some(names)) => names,
        Ok(None) => {
            return Ok(Removal::Left(format!(
                "the names of the children of {root} are longer together than the operator reads"
            )));
        }
        Err(EnsembleError::NoNode) => return Ok(Removal::Done),
        Err(EnsembleError::NoAuth) => return Err(fail(Error::NoAuth)),
        Err(error) => {
            return Err(TreeError::Away(format!(
                "cannot list the children of {root}: {error}"
            )));
        }
    };
    drop(listing);
    if names.iter().any(|name| is_contender(name)) {
        return Ok(Removal::InUse);
    }
    let mut worst = if names.len() > MOST {
        Removal::Goes
    } else {
        Removal::Done
    };
    for some in names[..names.len().min(MOST)].chunks(AT_ONCE) {
        let some = some.iter().map(|name| remove(connection, root, name));
        worst = try_join_all(some).await?.into_iter().fold(worst, Removal::max);
    }
    Ok(worst)
}

/// Removes a child that ends with no session.
async fn remove(connection: &Onlooker, root: &str, name: &str) -> Result<Removal, TreeError> {
    let path = format!("{root}/{name}");
    let stays = |why: &str| Ok(Removal::Left(format!("{root}/{} {why}", shown(name))));
    let stat = match connection.check_stat(&path).await {
        Ok(Some(stat)) => stat,
        Ok(None) => return Ok(Removal::Done),
        // Newer servers want the right to read for that. Whether it ends with a session is not known, so it is not touched.
        Err(Error::NoAuth) => return stays("may not be read by the identity in use"),
        Err(error) => return Err(failed(root, error)),
    };
    if is_ephemeral(stat.ephemeral_owner) {
        return Ok(Removal::InUse);
    }
    match connection.delete(&path, Some(stat.version)).await {
        Ok(()) | Err(Error::NoNode) => Ok(Removal::Done),
        // It may be another one by now.
        Err(Error::BadVersion) => Ok(Removal::Goes),
        Err(Error::NotEmpty) => stays("has children of its own"),
        Err(Error::NoAuth) => stays("may not be deleted by the identity in use"),
        Err(error) => Err(failed(root, error)),
    }
}
