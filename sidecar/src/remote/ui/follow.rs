//! Follows the locks over one connection after the other.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lockkeeper_daemon::exit::Failure;
use tokio::sync::mpsc;

use super::super::ensemble::Ensemble;
use super::super::watch::connect_again;
use super::lock::{self, Ended};
use super::search::search;
use super::site::Site;
use crate::args::{EnsembleArgs, Pattern};

/// Locks that wait to be read for the first time. The search for others goes on when there are fewer.
const MOST_UNREAD: usize = 256;

/// Keeps the page as the ensemble has the locks.
///
/// # Errors
/// When the ensemble refuses us for good.
pub(super) async fn follow(
    site: &Site,
    pattern: &Pattern,
    args: &EnsembleArgs,
    mut ensemble: Ensemble,
) -> Result<(), Failure> {
    loop {
        let failure = over(site, pattern, &ensemble).await;
        site.lose(&failure.sentence);
        ensemble = connect_again(args).await?;
    }
}

/// Follows the locks until the connection is lost, and returns why.
async fn over(site: &Site, pattern: &Pattern, ensemble: &Ensemble) -> Failure {
    site.begin();
    let (found, mut next) = mpsc::channel(1);
    let mut following = FuturesUnordered::new();
    let closed = ensemble.connection.closed();
    let search = search(site, ensemble, pattern, found);
    tokio::pin!(closed, search);
    loop {
        tokio::select! {
            _ = &mut closed => return Failure::unavailable("the connection to the ensemble was lost"),
            failure = &mut search => return failure,
            Some(path) = next.recv(), if site.unread() < MOST_UNREAD => {
                following.push(async move {
                    let ended = lock::follow(site, ensemble, &path).await;
                    (path, ended)
                });
            }
            Some((path, ended)) = following.next() => match ended {
                Ended::NoLock => site.forget(&path),
                Ended::Unreadable(failure) => site.cannot_read(&path, failure),
                Ended::Lost(failure) => return failure,
            },
            () = site.progress() => {}
        }
    }
}
