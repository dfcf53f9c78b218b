//! Agrees with the other contenders before entering the queue.
//!
//! The agreement is the data of the lock root. Each contender is created in one transaction with a check of their
//! version. The data change only together with the root, in a transaction that fails while a contender is in the queue.
//! So all contenders in one queue have read the same agreement. A root that was deleted and created anew may have the
//! version of the old one. Therefore each listing of the queue, which precedes every hold, shows to which root the
//! children belong.

use std::sync::Arc;

use super::bar::Bar;
use crate::agreement::{Agreement, Objection};
use crate::ensemble::{Connection, Created, EnsembleError, EnsembleResult, Incarnation, Op};
use crate::error::LockError;
use crate::queue::Mode;

/// Attempts before giving up: each failure means that another client has changed the lock root.
const TRIES: usize = 16;

/// The data with which to create a contender.
pub(in crate::task) struct Wanted {
    pub(in crate::task) root: String,
    pub(in crate::task) prefix: String,
    pub(in crate::task) data: Vec<u8>,
    pub(in crate::task) mode: Mode,
}

/// Why no contender was created.
pub(in crate::task) enum NotEntered {
    /// A lost connection, or an error that is not a refusal.
    Failed(EnsembleError),
    /// Refused for good.
    Refused(LockError),
    /// Refused until something changes.
    Barred(Bar),
}

impl From<EnsembleError> for NotEntered {
    fn from(error: EnsembleError) -> Self {
        Self::Failed(error)
    }
}

/// A contender, and the lock root under whose agreement it was created.
pub(in crate::task) struct Entered {
    pub(in crate::task) created: Created,
    pub(in crate::task) agreed: Incarnation,
}

/// Creates the contender under the agreement `known`, or under the one in the lock root now. Writes the agreement if
/// there is none, and creates the lock root if it is missing.
pub(in crate::task) async fn enter<C: Connection>(
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
            // The agreement has changed, or is gone with the root, since it was read.
            Err(EnsembleError::BadVersion | EnsembleError::NoNode) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(EnsembleError::BadVersion.into())
}

/// Reads the agreement, and writes it if we may.
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
            // Read again: other contenders may have written too.
            Ok(()) | Err(EnsembleError::BadVersion | EnsembleError::NoNode) => {}
            // A contender is in the queue, or we may not change the root.
            Err(EnsembleError::NotEmpty | EnsembleError::NoAuth) => return Err(refused(root, objection)),
            Err(error) => return Err(error.into()),
        }
    }
    Err(EnsembleError::BadVersion.into())
}

/// Replaces the old lock root by a new one, unless the old one has children.
async fn replace<C: Connection>(connection: &C, root: &str, data: Vec<u8>) -> EnsembleResult<()> {
    let path = root.to_owned();
    let ops = vec![
        Op::Delete {
            path: path.clone(),
            version: None,
        },
        Op::Create { path, data },
    ];
    connection.multi(ops).await.map_err(|failed| failed.error)
}

fn refused(root: &str, objection: Objection) -> NotEntered {
    NotEntered::Refused(LockError::NotAgreed {
        path: root.to_owned(),
        objection,
    })
}
