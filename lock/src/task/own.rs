//! The node of our contender.

use crate::ensemble::{Created, Incarnation};
use crate::record::Holder;
use crate::token::FencingToken;

/// Which node is ours, and whether we would hear of its deletion.
pub(super) struct Own {
    path: String,
    token: FencingToken,
    /// The lock root under whose agreement it was created; `None` when it was created without one that admits us.
    agreed: Option<Incarnation>,
    watch: Watch,
}

enum Watch {
    Missing,
    Asked,
    /// In place over this connection: we then hear of a deletion of our own node before any later one.
    InPlace,
}

impl Own {
    pub(super) fn new(created: Created, agreed: Option<Incarnation>) -> Self {
        Self {
            path: created.path,
            token: created.czxid,
            agreed,
            watch: Watch::Missing,
        }
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub(super) fn token(&self) -> FencingToken {
        self.token
    }

    pub(super) fn agreed(&self) -> Option<Incarnation> {
        self.agreed
    }

    /// It, as the control node names holders.
    pub(super) fn holder(&self) -> Holder {
        Holder {
            contender: self.name().to_owned(),
            token: self.token,
        }
    }

    /// Whether to ask for a watch now.
    pub(super) fn begin_watch(&mut self) -> bool {
        let is_missing = matches!(self.watch, Watch::Missing);
        if is_missing {
            self.watch = Watch::Asked;
        }
        is_missing
    }

    /// The watch is in place.
    pub(super) fn watched(&mut self) {
        self.watch = Watch::InPlace;
    }

    /// The watch has ended.
    pub(super) fn unwatched(&mut self) {
        self.watch = Watch::Missing;
    }

    /// Whether its deletion would have been heard of.
    pub(super) fn is_watched(&self) -> bool {
        matches!(self.watch, Watch::InPlace)
    }
}
