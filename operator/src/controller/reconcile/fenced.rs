//! Part of the fourth step: contenders go whose machines are known to be off.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

use super::build::MOST_DEAD;
use super::resolve::Resolved;
use crate::controller::LOOK;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::removals::Removals;
use crate::controller::writer::Writer;
use crate::fencing::Suspect;
use crate::metrics::OfLock;
use crate::zookeeper::client::Way;
use crate::zookeeper::nodes::TreeError;

/// Until more are removed, where there are more than are removed in one go.
const PAUSE: Duration = Duration::from_secs(1);

/// Removes these contenders, says so in log and metric, and remembers it for status and event. Returns after which time
/// there is more to remove.
///
/// # Errors
/// Those of the ensemble; and when this replica does not lead.
pub(super) async fn remove(
    ctx: &Context,
    writer: Writer<'_>,
    way: &Way,
    resolved: &Resolved,
    dead: &[Suspect],
) -> Result<Option<Duration>, Error> {
    let key = &resolved.key;
    let rest = rest(ctx.memories.of(key).crowd_removed);
    if !rest.is_zero() {
        return Ok(Some(rest));
    }
    let mut now = Removals::default();
    let done = remove_all(ctx, writer, way, resolved, dead, &mut now).await;
    // Also of those that went before an error.
    if let Some(notice) = now.notice() {
        tracing::warn!(lock = %key, "Out of service: {}", notice.note);
    }
    done
}

async fn remove_all(
    ctx: &Context,
    writer: Writer<'_>,
    way: &Way,
    resolved: &Resolved,
    dead: &[Suspect],
    log: &mut Removals,
) -> Result<Option<Duration>, Error> {
    let key = &resolved.key;
    for one in dead {
        match writer.remove_contender(way, key, &one.contender, one.token).await {
            Ok(true) => {}
            Ok(false) => continue,
            // Of another client's lock root: its locks can be used without the operator. So are all the others there.
            Err(Error::Tree(error @ TreeError::Foreign { .. })) => {
                tracing::warn!(
                    lock = %key, %error, contender = %one.contender,
                    "Failed to remove a contender of a node out of service"
                );
                return Ok(Some(LOOK));
            }
            Err(error) => return Err(error),
        }
        tracing::debug!(lock = %key, contender = %one.contender, pod = %one.pod, node = %one.node, "Removed a contender");
        ctx.metrics.fenced.get_or_create(&OfLock::from(key)).inc();
        let (previous, at) = (resolved.lock.status.as_ref(), Timestamp::now());
        log.add(one, None, at);
        ctx.memories
            .edit(key, |memory| memory.removals.add(one, previous, at));
    }
    if dead.len() < MOST_DEAD {
        return Ok(None);
    }
    ctx.memories
        .edit(key, |memory| memory.crowd_removed = Some(Instant::now()));
    Ok(Some(PAUSE))
}

/// How long the next ones wait after as many as are removed in one go: their end changes the queue, and so the lock comes
/// again at once.
fn rest(crowd_removed: Option<Instant>) -> Duration {
    crowd_removed.map_or(Duration::ZERO, |at| PAUSE.saturating_sub(at.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_crowd_was_removed_the_next_one_waits_for_a_second() {
        assert_eq!(rest(None), Duration::ZERO);
        let now = Instant::now();
        assert_eq!(rest(Some(now)), PAUSE);
        tokio::time::advance(PAUSE).await;
        assert_eq!(rest(Some(now)), Duration::ZERO);
    }
}
