//! A place in a queue whose nodes are somebody else's to make ([`crate::LockOptions::provisioned`]).
//!
//! What is missing is watched for. A right that is missing cannot be: it is asked for again, ever
//! more seldom.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::turn::Watched;
use super::{Answer, Place, Task, Write};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Created, Ensemble, EnsembleError, EnsembleResult, Node, NodeEvent};
use crate::error::LockError;
use crate::record::contender_data;
use crate::token::FencingToken;

/// Pause before a right is asked for again, doubled each time: somebody who makes a node gives the
/// rights with it, or right after it.
const SHORTEST_PAUSE: Duration = Duration::from_millis(250);

/// Waiters ask for rights that a person may have forgotten: seldom enough for hundreds of them.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What keeps us out of the queue.
pub(super) struct Bar {
    path: String,
    /// `NoNode` or `NoAuth`.
    error: EnsembleError,
    /// When a missing node is there; `None` where nobody tells.
    made: Option<BoxFuture<'static, NodeEvent>>,
}

/// The first node that is missing, or that may not be read. ZooKeeper tells everybody whether a node
/// exists, so that needs no right.
async fn bar<C: Connection>(connection: &C, paths: [String; 2]) -> EnsembleResult<Option<Bar>> {
    for path in paths {
        if let Some(made) = connection.watch_creation(&path).await? {
            return Ok(Some(Bar {
                path,
                error: EnsembleError::NoNode,
                made: Some(made),
            }));
        }
        match connection.node(&path).await {
            Ok(_) => {}
            Err(error @ (EnsembleError::NoAuth | EnsembleError::NoNode)) => {
                return Ok(Some(Bar {
                    path,
                    error,
                    made: None,
                }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Creates the contender if both nodes are there and ours to use.
async fn enter<C: Connection>(
    connection: Arc<C>,
    root: String,
    control: String,
    prefix: String,
    data: Vec<u8>,
) -> EnsembleResult<Result<Created, Bar>> {
    if let Some(bar) = bar(&*connection, [root.clone(), control]).await? {
        return Ok(Err(bar));
    }
    match connection.create_contender(&prefix, data).await {
        Err(error @ (EnsembleError::NoNode | EnsembleError::NoAuth)) => Ok(Err(Bar {
            path: root,
            error,
            made: None,
        })),
        created => created.map(Ok),
    }
}

/// A control node that is missing says nothing, until somebody makes it.
pub(super) async fn watch_missing_control<C: Connection>(connection: Arc<C>, path: String) -> Watched {
    match connection.watch_creation(&path).await? {
        Some(made) => {
            let nothing = Node {
                data: Vec::new(),
                czxid: FencingToken(0),
                version: 0,
                owner: 0,
            };
            Ok((nothing, made))
        }
        None => super::turn::watch(connection, path).await,
    }
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(super) fn ask_for_a_place(
        &mut self,
        connection: Arc<E::Connection>,
        prefix: String,
        sent: BootInstant,
    ) {
        let data = contender_data(&self.options.identity, false, self.options.timing.stop_grace);
        let entering = enter(
            connection,
            self.options.root.clone(),
            self.options.control.clone(),
            prefix,
            data,
        );
        self.ask(async move {
            match entering.await {
                Ok(Ok(created)) => Answer::Entered {
                    sent,
                    result: Ok(created),
                },
                Ok(Err(bar)) => Answer::Barred(bar),
                Err(error) => Answer::Entered {
                    sent,
                    result: Err(error),
                },
            }
        });
    }

    /// Nothing was created. Looks again when something changes, or may have.
    pub(super) fn barred(&mut self, bar: Bar) {
        self.written(Write::Enter);
        let Bar { path, error, made } = bar;
        let refusal = LockError::NotProvided { path, error };
        if self.refusal.as_ref() != Some(&refusal) {
            tracing::warn!(lock.path = self.options.root, "{refusal}; waiting for that");
            self.refusal = Some(refusal);
        }
        if self.releasing.is_some() {
            return self.released();
        }
        self.place = Place::Out;
        self.is_barred = true;
        match made {
            Some(made) => {
                self.bar_pause = SHORTEST_PAUSE;
                self.ask(async move { Answer::Unbarred(made.await) });
            }
            None => {
                let pause = self.bar_pause.max(SHORTEST_PAUSE);
                self.bar_pause = (pause * 2).min(LONGEST_PAUSE);
                let (clock, pause) = (self.clock.clone(), pause.mul_f64(0.5 + fastrand::f64() / 2.0));
                self.ask(async move {
                    clock.sleep(pause).await;
                    Answer::Unbarred(NodeEvent::Changed)
                });
            }
        }
    }

    pub(super) fn unbarred(&mut self, event: NodeEvent) {
        self.is_barred = false;
        if event == NodeEvent::Disconnected {
            self.drop_link();
        }
    }
}
