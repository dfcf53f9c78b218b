//! Part of the fourth step: contenders go whose machines are known to be off.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use lockkeeper_crds::lock;

use super::resolve::Resolved;
use crate::controller::LOOK;
use crate::controller::context::Context;
use crate::controller::error::Error;
use crate::controller::status::shown;
use crate::controller::writer::Writer;
use crate::fencing::Suspect;
use crate::kubernetes::events::{Notice, Reason};
use crate::metrics::OfLock;
use crate::zookeeper::client::Way;
use crate::zookeeper::nodes::TreeError;

/// What was removed.
#[derive(Debug, Default)]
pub(super) struct Removed {
    /// Events for users.
    pub notices: Vec<Notice>,
    /// The last one, for the status.
    pub last: Option<lock::Fenced>,
    /// One of them could not be removed, and is tried again after this time.
    pub again: Option<Duration>,
}

/// Removes these contenders, and says so in log, metric, event and status.
///
/// # Errors
/// Those of the ensemble; and when this replica does not lead.
pub(super) async fn remove(
    ctx: &Context,
    writer: Writer<'_>,
    way: &Way,
    resolved: &Resolved,
    dead: &[Suspect],
) -> Result<Removed, Error> {
    let key = &resolved.key;
    let mut removed = Removed::default();
    for one in dead {
        let Suspect {
            contender,
            token,
            pod,
            node,
            ..
        } = one;
        match writer.remove_contender(way, key, contender, *token).await {
            Ok(true) => {}
            Ok(false) => continue,
            // Of another client's lock root: its locks can be used without the operator.
            Err(Error::Tree(error @ TreeError::Foreign { .. })) => {
                tracing::warn!(lock = %key, %error, contender, "Failed to remove a contender of a node out of service");
                removed.again = Some(LOOK);
                continue;
            }
            Err(error) => return Err(error),
        }
        tracing::warn!(lock = %key, contender, pod, node, "Removed a contender: its node is out of service");
        ctx.metrics.fenced.get_or_create(&OfLock::from(key)).inc();
        let note = format!("removed the contender of {pod}: its node {node} is out of service");
        removed.notices.push(Notice::new(Reason::NodeFenced, note));
        // Whole seconds, as the API server stores them.
        let now = Timestamp::now();
        let fenced = lock::Fenced {
            pod: pod.clone(),
            node: node.clone(),
            contender: shown(contender),
            time: Time(Timestamp::from_second(now.as_second()).unwrap_or(now)),
        };
        ctx.memories
            .edit(key, |memory| memory.fenced.push(fenced.clone()));
        removed.last = Some(fenced);
    }
    Ok(removed)
}
