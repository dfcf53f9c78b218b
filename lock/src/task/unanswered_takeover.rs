//! Whether a takeover whose answer was lost was carried out: our own data tell.

use std::sync::Arc;

use super::Task;
use super::answer::Answer;
use super::pending::Write;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble, EnsembleResult, Node, Op};
use crate::loss::LossReason;
use crate::record::ContenderData;

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Reads our own contender if the answer to a takeover was lost. The transaction that deletes the silent contender
    /// is the only one that states in our data whose place it takes. So it was carried out if they state it.
    ///
    /// The next write to our data would replace them. So this counts as a takeover under way: until it is answered,
    /// nothing else is written there.
    pub(super) fn look_for_the_takeover(&mut self, connection: &Arc<E::Connection>) {
        let Some(entry) = self.place.entry() else { return };
        if entry.statement.taking().is_none() || self.pending.has_any(&[Write::TakeOver]) {
            return;
        }
        let (connection, path) = (Arc::clone(connection), entry.own.path().to_owned());
        let sent = self.writing(Write::TakeOver);
        self.pending
            .ask(read(connection, path), move |result| Answer::OwnData {
                sent,
                result,
            });
    }

    pub(super) fn own_data(&mut self, sent: BootInstant, result: EnsembleResult<Node>) {
        self.pending.written(Write::TakeOver);
        let node = match result {
            Ok(node) => node,
            Err(error) => return self.contender_refused("read", error),
        };
        let (Some(entry), Some(connection)) = (self.place.entry_mut(), self.link.connection()) else {
            return;
        };
        if node.owner != connection.session().id || node.czxid != entry.own.token() {
            return self.entry_is_gone(LossReason::ContenderDeleted);
        }
        let said = ContenderData::parse(&node.data).took_over;
        let contender = said.as_ref().map(|of| of.contender.as_str());
        let taking = entry.statement.taking().map(|of| of.contender.as_str());
        if contender != taking {
            entry.statement.not_taken();
        }
        // The answer counts only over a connection that was never interrupted. Otherwise we look again.
        if !self.acknowledge(sent) {
            return self.drop_link();
        }
        self.has_taken_over();
    }
}

/// Our own contender at `path`, after a quorum write that changes nothing. The transaction may have been between the
/// leader and its followers when another server took our session. That write is behind it, so its answer comes after
/// the transaction's commit.
async fn read<C: Connection>(connection: Arc<C>, path: String) -> EnsembleResult<Node> {
    let checked = connection.multi(vec![Op::Check { path: path.clone() }]).await;
    checked.map_err(|failed| failed.error)?;
    connection.node(&path).await
}
