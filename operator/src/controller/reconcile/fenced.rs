//! Part of the fourth step: removes contenders whose machines are known to be off.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::build::MOST_DEAD;
use super::resolve::Resolved;
use crate::controller::LOOK;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::removals::Removals;
use crate::controller::writer::{LeasedWay, Writer};
use crate::node_fencing::Suspect;
use crate::zookeeper::nodes::TreeError;

/// The pause between two rounds of removals, where there are more contenders than one round removes. Their end changes
/// the queue, so without it the lock would come again at once.
const PAUSE: Duration = Duration::from_secs(1);

/// What a round of removals has done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removed {
    /// Whether any contender was removed just now. Then the next plan tells of it.
    pub(super) is_any: bool,
    /// The time after which there is more to remove.
    pub(super) again: Option<Duration>,
}

/// Removes these contenders, counts and logs each, and remembers them for status and event.
///
/// # Errors
/// Those of the ensemble; and when this replica does not lead.
pub(super) async fn remove(
    ctx: &Context,
    writer: Writer<'_>,
    way: &LeasedWay,
    resolved: &Resolved,
    dead: &[Suspect],
) -> Result<Removed, Error> {
    let key = &resolved.key;
    let rest = ctx.memories.of(key).crowd_removed.rest(PAUSE);
    if !rest.is_zero() {
        return Ok(Removed {
            is_any: false,
            again: Some(rest),
        });
    }
    let mut now = Removals::default();
    let done = remove_all(ctx, writer, way, resolved, dead, &mut now).await;
    // Also of those that went before an error.
    if let Some(notice) = now.notice() {
        tracing::warn!(lock = %key, "Out of service: {}", notice.note);
    }
    Ok(Removed {
        is_any: now.last().is_some(),
        again: done?,
    })
}

/// Removes these contenders, and returns the time after which there is more to remove.
async fn remove_all(
    ctx: &Context,
    writer: Writer<'_>,
    way: &LeasedWay,
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
        ctx.metrics.fenced_one(key);
        let (previous, at) = (resolved.lock.status.as_ref(), Timestamp::now());
        log.add(one, None, at);
        ctx.memories
            .edit(key, |memory| memory.removals.add(one, previous, at));
    }
    if dead.len() < MOST_DEAD {
        return Ok(None);
    }
    ctx.memories.edit(key, |memory| memory.crowd_removed.done());
    Ok(Some(PAUSE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::memory::Memory;

    #[tokio::test(start_paused = true)]
    async fn after_a_crowd_was_removed_the_next_one_waits_for_a_second() {
        let mut memory = Memory::default();
        assert_eq!(memory.crowd_removed.rest(PAUSE), Duration::ZERO);
        memory.crowd_removed.done();
        assert_eq!(memory.crowd_removed.rest(PAUSE), PAUSE);
        tokio::time::advance(PAUSE).await;
        assert_eq!(memory.crowd_removed.rest(PAUSE), Duration::ZERO);
    }
}
