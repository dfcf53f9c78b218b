//! Whether the ensemble can be reached, judged with patience: a server that is restarted is no news
//! for ten thousand objects.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::Onlooker;
use tokio::sync::watch;

use crate::error::Problem;
use crate::mirror::{Link, Mirror};

/// How long the ensemble may be out of reach before objects say so: longer than the election of a
/// leader, shorter than the default session timeout.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How the operator stands with the ensemble.
#[derive(Clone, Debug)]
pub enum Reach {
    /// Connected, and the picture is fresh.
    Up(Arc<Onlooker>),
    /// Not now, and not for long.
    Unsure,
    /// Out of reach for longer than [`PATIENCE`].
    Lost {
        /// Why, as of the last attempt before that was clear.
        problem: Problem,
        /// Counts the times that this happened.
        time: u64,
    },
}

/// Follows a mirror's link; to be run as a task. Ends with the mirror.
pub async fn follow(mirror: Mirror, reach: watch::Sender<Reach>) {
    let mut link = mirror.watch_link();
    let mut time = 0;
    loop {
        let is_up = async {
            let up = link.wait_for(|link| link.up().is_some()).await;
            up.map(|link| link.up().cloned())
        };
        let Ok(up) = tokio::time::timeout(PATIENCE, is_up).await else {
            let problem = match &*link.borrow() {
                Link::Down(problem) => problem.clone(),
                Link::Reading(_) | Link::Up(_) => {
                    Problem::new(Reason::Disconnected, "reading the queues takes long")
                }
            };
            time += 1;
            tracing::warn!(reason = problem.message, "The ensemble is out of reach");
            reach.send_replace(Reach::Lost { problem, time });
            if link.wait_for(|link| link.up().is_some()).await.is_err() {
                return;
            }
            continue;
        };
        match up {
            Ok(Some(connection)) => drop(reach.send_replace(Reach::Up(connection))),
            Ok(None) => continue,
            Err(_) => return,
        }
        if link.wait_for(|link| link.up().is_none()).await.is_err() {
            return;
        }
        reach.send_replace(Reach::Unsure);
    }
}
