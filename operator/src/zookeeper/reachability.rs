//! Whether the ensemble can be reached, with a delay: the restart of one server must not change ten thousand objects.

use std::time::Duration;

use lockkeeper_crds::lock::Reason;
use tokio::sync::watch;

use crate::problem::Problem;
use crate::zookeeper::client::Way;
use crate::zookeeper::queues::Link;

/// How long the ensemble may be out of reach before objects say so: longer than the election of a
/// leader, shorter than the default session timeout.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How the operator stands with the ensemble.
#[derive(Clone, Debug)]
pub enum Reachability {
    /// Connected, and the picture is fresh.
    Up(Way),
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

/// Follows a link, on which `way` goes; to be run as a task. Ends with the link.
pub(crate) async fn follow<C: Clone>(
    mut link: watch::Receiver<Link<C>>,
    way: impl Fn(C) -> Way,
    reachability: watch::Sender<Reachability>,
) {
    let mut time = 0;
    loop {
        let is_up = async {
            let up = link.wait_for(|link| link.up().is_some()).await;
            up.map(|link| link.up().cloned())
        };
        let Ok(up) = tokio::time::timeout(PATIENCE, is_up).await else {
            let problem = match &*link.borrow() {
                Link::Down(problem) => problem.clone(),
                Link::Reading | Link::Up(_) => {
                    Problem::new(Reason::Disconnected, "reading the queues takes long")
                }
            };
            time += 1;
            tracing::warn!(reason = problem.message, "The ensemble is out of reach");
            let mut is_passing = problem.reason == Reason::Disconnected;
            reachability.send_replace(Reachability::Lost { problem, time });
            loop {
                // A lasting problem may appear later, and is reported once.
                let is_news = |link: &Link<C>| {
                    let lasts = |problem: &Problem| problem.reason != Reason::Disconnected;
                    link.up().is_some() || is_passing && matches!(link, Link::Down(problem) if lasts(problem))
                };
                let problem = match link.wait_for(is_news).await.as_deref() {
                    Ok(Link::Down(problem)) => problem.clone(),
                    Ok(Link::Reading | Link::Up(_)) => break,
                    Err(_) => return,
                };
                is_passing = false;
                time += 1;
                reachability.send_replace(Reachability::Lost { problem, time });
            }
            continue;
        };
        match up {
            Ok(Some(connection)) => drop(reachability.send_replace(Reachability::Up(way(connection)))),
            Ok(None) => continue,
            Err(_) => return,
        }
        if link.wait_for(|link| link.up().is_none()).await.is_err() {
            return;
        }
        reachability.send_replace(Reachability::Unsure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reason_that_does_not_pass_is_told_also_when_it_shows_later_and_once() {
        let down = |reason, message: &str| Link::<()>::Down(Problem::new(reason, message));
        let (link, seen) = watch::channel(down(Reason::Disconnected, "away"));
        let (reach, mut told) = watch::channel(Reachability::Unsure);
        let following = tokio::spawn(follow(seen, |()| unreachable!("it is never up"), reach));
        let mut next = async || {
            told.changed().await.unwrap();
            match told.borrow_and_update().clone() {
                Reachability::Lost { problem, time } => (problem.message, time),
                reach => panic!("{reach:?}"),
            }
        };
        assert_eq!(next().await, ("away".to_owned(), 1));
        link.send_replace(down(Reason::TlsFailed, "no certificate"));
        assert_eq!(next().await, ("no certificate".to_owned(), 2));
        link.send_replace(down(Reason::Disconnected, "away"));
        link.send_replace(down(Reason::TlsFailed, "no certificate"));
        assert!(tokio::time::timeout(PATIENCE * 10, next()).await.is_err());
        following.abort();
    }
}
