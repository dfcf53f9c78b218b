//! Agreeing with the other contenders before standing among them.
//!
//! The agreement is the data of the lock root. A contender is created in one transaction with a check of
//! their version, and the data change only together with the root, in a transaction that fails while anybody
//! is in the queue. So all who stand in one queue have read the same. A root that was deleted and made anew
//! may have the version of the old one: each listing of the queue, which has to come before anything is held,
//! tells whose children they are.

use std::sync::Arc;

use super::provision::Bar;
use super::{Place, Task};
use crate::agreement::{Agreement, Objection};
use crate::clock::Clock;
use crate::ensemble::{Connection, Created, Ensemble, EnsembleError, EnsembleResult, Incarnation, Op};
use crate::error::LockError;
use crate::queue::Mode;

/// Tries before giving up: each failure means that another client has changed the lock root.
const TRIES: usize = 16;

/// What a contender is to be created with.
pub(super) struct Wanted {
    pub root: String,
    pub prefix: String,
    pub data: Vec<u8>,
    pub mode: Mode,
}

/// Why no contender was created.
pub(super) enum NotEntered {
    /// The connection, or an answer that is no refusal.
    Failed(EnsembleError),
    /// For good.
    Refused(LockError),
    /// Until something changes.
    Barred(Bar),
}

impl From<EnsembleError> for NotEntered {
    fn from(error: EnsembleError) -> Self {
        Self::Failed(error)
    }
}

/// A contender, and the lock root under whose agreement it was created.
pub(super) struct Entered {
    pub created: Created,
    pub agreed: Incarnation,
}

/// Creates the contender under the agreement `known`, or under what is written in the lock root now. Writes
/// it where there is none, and makes the lock root if that is missing.
pub(super) async fn enter<C: Connection>(
    connection: Arc<C>,
    wanted: Wanted,
    mut known: Option<Incarnation>,
) -> Result<Entered, NotEntered> {
    for _ in 0..TRIES {
        let agreed = match known.take() {
            Some(agreed) => agreed,
            None => agree(&*connection, &wanted).await?,
        };
        let creating = connection.create_contender(&wanted.prefix, wanted.data.clone(), agreed.version);
        match creating.await {
            Ok(created) => return Ok(Entered { created, agreed }),
            // Changed, or gone with the root, since it was read.
            Err(EnsembleError::BadVersion | EnsembleError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(EnsembleError::BadVersion.into())
}

/// Reads the agreement, and writes it where that is ours to do.
async fn agree<C: Connection>(connection: &C, wanted: &Wanted) -> Result<Incarnation, NotEntered> {
    let Wanted { root, mode, .. } = wanted;
    let own = Agreement::of(*mode).to_data();
    for _ in 0..TRIES {
        let node = match connection.node(root).await {
            Ok(node) => node,
            Err(EnsembleError::NoNode) => {
                connection.make_path(root, own.clone()).await?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let (written, objection) = match Agreement::parse(&node.data) {
            Ok(None) => {
                let setting = connection.set_data(root, own.clone(), Some(node.version));
                (setting.await, Objection::Missing)
            }
            Ok(Some(agreed)) => match agreed.admits(*mode) {
                Ok(()) => return Ok(node.incarnation()),
                Err(objection) => (replace(connection, root, own.clone()).await, objection),
            },
            Err(objection) => return Err(refused(root, objection)),
        };
        match written {
            // Read again: others may have written too.
            Ok(()) | Err(EnsembleError::BadVersion | EnsembleError::NoNode) => {}
            // Somebody stands in the queue, or it is not for us to change.
            Err(EnsembleError::NotEmpty | EnsembleError::NoAuth) => return Err(refused(root, objection)),
            Err(error) => return Err(error.into()),
        }
    }
    Err(EnsembleError::BadVersion.into())
}

/// Puts a new lock root in the place of the old one, unless that has children.
async fn replace<C: Connection>(connection: &C, root: &str, data: Vec<u8>) -> EnsembleResult<()> {
    let path = root.to_owned();
    let ops = vec![Op::Delete { path: path.clone() }, Op::Create { path, data }];
    connection.multi(ops).await.map_err(|failed| failed.error)
}

fn refused(root: &str, objection: Objection) -> NotEntered {
    NotEntered::Refused(LockError::NotAgreed {
        path: root.to_owned(),
        objection,
    })
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    /// Whether the queue that was listed is that whose agreement was checked when we entered it. If not we
    /// leave it, having held nothing, and enter anew.
    pub(super) fn is_agreed(&mut self, listed: Incarnation) -> bool {
        let Place::In(entry) = &self.place else {
            return false;
        };
        if entry.agreed == Some(listed) {
            return true;
        }
        self.agreed = None;
        // Whoever leaves already does not come back for it.
        if self.releasing.is_some() || self.lost.is_some() {
            return false;
        }
        tracing::warn!(
            lock.path = self.options.root,
            "The agreement about the lock was changed while we entered the queue; queueing again"
        );
        self.release(true, None);
        false
    }
}
