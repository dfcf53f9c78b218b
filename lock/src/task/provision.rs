//! A place in a queue whose nodes are somebody else's to make ([`crate::LockOptions::provisioned`]).
//!
//! What is missing is watched for. A right that is missing cannot be: it is asked for again, ever
//! more seldom. And a server tells of a new node only those who may read it (3.8.4 and 3.9.2, for
//! CVE-2024-23944): where the rights come later than the node, the watch is used up without a word. So
//! behind every watch there is a look, as seldom as that. What is agreed on about the lock is read, and
//! never written.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::agree::{Entered, NotEntered, Wanted};
use super::turn::Watched;
use super::{Answer, Place, Task};
use crate::agreement::{Agreement, Objection};
use crate::clock::Clock;
use crate::ensemble::{Connection, Ensemble, EnsembleError, EnsembleResult, Incarnation, Node, NodeEvent};
use crate::error::LockError;
use crate::queue::Mode;
use crate::token::FencingToken;

/// Pause before a right is asked for again, doubled each time: somebody who makes a node gives the
/// rights with it, or right after it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

/// Waiters ask for rights that a person may have forgotten: seldom enough for hundreds of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What keeps us out of the queue.
pub(super) struct Bar {
    pub(super) refusal: LockError,
    /// When a missing node is there, or the data of one that is there change; `None` where nobody tells.
    pub(super) changed: Option<BoxFuture<'static, NodeEvent>>,
    /// What to do after a pause: look again, or do so over another connection.
    pub(super) then: NodeEvent,
}

impl Bar {
    /// Something that nobody tells the end of.
    pub(super) fn new(refusal: LockError) -> Self {
        Self {
            refusal,
            changed: None,
            then: NodeEvent::Changed,
        }
    }

    /// A node is missing (`NoNode`), or gives us no right (`NoAuth`).
    fn not_provided(path: &str, error: EnsembleError) -> Self {
        Self::new(LockError::NotProvided {
            path: path.to_owned(),
            error,
        })
    }
}

/// A node, if it is there and may be read.
pub(super) async fn provided<C: Connection>(connection: &C, path: &str) -> EnsembleResult<Result<Node, Bar>> {
    let (error, made) = match connection.watch_creation(path).await {
        Ok(Some(made)) => (EnsembleError::NoNode, Some(made)),
        Ok(None) => match connection.node(path).await {
            Ok(node) => return Ok(Ok(node)),
            Err(error) => (error, None),
        },
        Err(error) => (error, None),
    };
    match error {
        EnsembleError::NoNode | EnsembleError::NoAuth => Ok(Err(Bar {
            changed: made,
            ..Bar::not_provided(path, error)
        })),
        error => Err(error),
    }
}

/// What the data of the lock root say against a contender of this mode.
fn objection(data: &[u8], mode: Mode) -> Option<Objection> {
    match Agreement::parse(data) {
        Ok(Some(agreement)) => agreement.admits(mode).err(),
        Ok(None) => Some(Objection::Missing),
        Err(objection) => Some(objection),
    }
}

/// The lock root, if both nodes are there and what is agreed on admits us.
async fn look<C: Connection>(
    connection: &C,
    root: &str,
    control: &str,
    mode: Mode,
) -> EnsembleResult<Result<Incarnation, Bar>> {
    let node = match provided(connection, root).await? {
        Ok(node) => node,
        Err(bar) => return Ok(Err(bar)),
    };
    if let Err(bar) = provided(connection, control).await? {
        return Ok(Err(bar));
    }
    if objection(&node.data, mode).is_none() {
        return Ok(Ok(node.incarnation()));
    }
    // Read once more, with a watch: it may have been changed since.
    let (node, changed) = match connection.watch_node(root).await {
        Ok((node, changed)) => (node, changed.boxed()),
        Err(error @ (EnsembleError::NoNode | EnsembleError::NoAuth)) => {
            return Ok(Err(Bar::not_provided(root, error)));
        }
        Err(error) => return Err(error),
    };
    Ok(match objection(&node.data, mode) {
        None => Ok(node.incarnation()),
        Some(objection) => Err(Bar {
            changed: Some(changed),
            ..Bar::new(LockError::NotAgreed {
                path: root.to_owned(),
                objection,
            })
        }),
    })
}

/// Creates the contender if both nodes are there and ours to use, and what is agreed on admits us.
pub(super) async fn enter<C: Connection>(
    connection: Arc<C>,
    wanted: Wanted,
    control: String,
) -> Result<Entered, NotEntered> {
    let looked = look(&*connection, &wanted.root, &control, wanted.mode).await?;
    let agreed = looked.map_err(NotEntered::Barred)?;
    match connection
        .create_contender(&wanted.prefix, wanted.data, agreed.version)
        .await
    {
        Ok(created) => Ok(Entered { created, agreed }),
        Err(error @ (EnsembleError::NoNode | EnsembleError::NoAuth | EnsembleError::BadVersion)) => {
            Err(NotEntered::Barred(Bar::not_provided(&wanted.root, error)))
        }
        Err(error) => Err(error.into()),
    }
}

/// The transaction that has created a node which is not there.
pub(super) const NOT_THERE: FencingToken = FencingToken(0);

/// A control node that is missing says nothing, until somebody makes it.
pub(super) async fn watch_missing_control<C: Connection>(connection: Arc<C>, path: String) -> Watched {
    match connection.watch_creation(&path).await? {
        Some(made) => {
            let nothing = Node {
                data: Vec::new(),
                czxid: NOT_THERE,
                version: 0,
                owner: 0,
            };
            Ok((nothing, made))
        }
        None => super::turn::watch(connection, path).await,
    }
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Nothing was created. Looks again when something changes, or may have.
    pub(super) fn barred(&mut self, bar: Bar) {
        let Bar {
            refusal,
            changed,
            then,
        } = bar;
        if self.refusal.as_ref() != Some(&refusal) {
            tracing::warn!(lock.path = self.options.root, "{refusal}; waiting for that");
            self.refusal = Some(refusal);
        }
        if self.releasing.is_some() {
            return self.released();
        }
        self.place = Place::Out;
        self.is_barred = true;
        let pause = if changed.is_some() {
            self.bar_pause = Duration::ZERO;
            LONGEST_PAUSE
        } else {
            let pause = self.bar_pause.max(SHORTEST_PAUSE);
            self.bar_pause = (pause * 2).min(LONGEST_PAUSE);
            pause
        };
        let (clock, pause) = (self.clock.clone(), pause.mul_f64(0.5 + fastrand::f64() / 2.0));
        let changed = changed.unwrap_or_else(|| Box::pin(std::future::pending()));
        self.ask(async move {
            tokio::select! {
                event = changed => Answer::Unbarred(event),
                () = clock.sleep(pause) => Answer::Unbarred(then),
            }
        });
    }

    pub(super) fn unbarred(&mut self, event: NodeEvent) {
        self.is_barred = false;
        if event == NodeEvent::Disconnected {
            self.connection_lost();
        }
    }
}
