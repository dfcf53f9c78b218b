//! Whether the nodes of a lock are in order, as this replica has found them last.

use std::time::Duration;

use lockkeeper_lock::Agreement;
use tokio::time::Instant;

/// How long nodes that were found in order are believed to be: rights that are changed by hand make
/// no event.
pub(crate) const RECHECK: Duration = Duration::from_secs(600);

#[derive(Clone, Debug, Default)]
pub(crate) struct KnownNodes {
    /// When they were found in order, and in which. An attempt at another order that fails leaves them in this one.
    found: Option<(Order, Instant)>,
    /// What was found at the last look, if they were not in order.
    disorder: Option<Disorder>,
}

/// What nodes are like that are in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// On which connection that was found.
    pub(crate) session: i64,
    /// For which identities: the ids of the ACLs.
    pub(crate) identities: Vec<String>,
    /// What is written of what contenders have to agree on.
    pub(crate) agreement: Agreement,
}

/// Why nodes could not be brought into order. It lasts until a user does something about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disorder {
    /// The contenders in the queue have agreed on this, or on something that cannot be read.
    Agreed(Option<Agreement>),
    /// They cannot be maintained, for this reason.
    Refused(String),
}

// === impl KnownNodes ===

impl KnownNodes {
    /// Whether they are in this order, so that nobody need look.
    pub(crate) fn are_in(&self, order: &Order) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|(found, at)| found == order && at.elapsed() < RECHECK)
    }

    /// Whether they were in order for these identities at any time.
    pub(crate) fn were_for(&self, identities: &[String]) -> bool {
        let found = self.found.as_ref();
        found.is_some_and(|(found, _)| found.identities == identities)
    }

    pub(crate) fn disorder(&self) -> Option<&Disorder> {
        self.disorder.as_ref()
    }

    /// They are believed to be in order still, and no other order is wished.
    pub(crate) fn believed(&mut self) {
        self.disorder = None;
    }

    /// They were looked at: they are in this order, or something is in the way of it.
    pub(crate) fn looked_at(&mut self, result: Result<Order, Disorder>) {
        match result {
            Ok(order) => {
                self.found = Some((order, Instant::now()));
                self.disorder = None;
            }
            Err(disorder) => self.disorder = Some(disorder),
        }
    }

    /// Forgets all of it: the next look is at new nodes.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockkeeper_lock::Mode;

    fn order(session: i64, mode: Mode) -> Order {
        Order {
            session,
            identities: vec!["a:b".to_owned()],
            agreement: Agreement::of(mode),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_looked_at_again_for_each_other_order_and_after_a_while() {
        let mut nodes = KnownNodes::default();
        let wanted = order(1, Mode::Exclusive);
        assert!(!nodes.are_in(&wanted));
        nodes.looked_at(Ok(wanted.clone()));
        assert!(nodes.are_in(&wanted));
        assert!(!nodes.are_in(&order(2, Mode::Exclusive)), "another session");
        assert!(!nodes.are_in(&order(1, Mode::Write)), "another agreement");
        tokio::time::advance(RECHECK).await;
        assert!(!nodes.are_in(&wanted));
        assert!(nodes.were_for(&wanted.identities));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_in_the_way_of_another_agreement_goes_with_the_wish_and_the_nodes_stay_in_their_order() {
        let (before, wanted) = (order(1, Mode::Exclusive), order(1, Mode::Write));
        let pending = Disorder::Agreed(Some(before.agreement));
        let mut nodes = KnownNodes::default();
        nodes.looked_at(Ok(before.clone()));
        nodes.looked_at(Err(pending.clone()));
        assert_eq!(nodes.disorder(), Some(&pending));
        assert!(nodes.are_in(&before) && !nodes.are_in(&wanted));
        nodes.believed();
        assert_eq!(nodes.disorder(), None);
    }
}
