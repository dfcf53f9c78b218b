//! The control node of a lock, as other clients than its keepers read it.

use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{Control, LONGEST_CONTROL_DATA, LockPath};

use super::ensemble::{Ensemble, Node, failure};

/// The path of a lock's control node: beside the lock, unless another one is given.
pub(super) fn path(lock: &str, given: Option<LockPath>) -> String {
    given.map_or_else(|| format!("{lock}-control"), |path| path.to_string())
}

/// The control node, and its version; `None` if there is none.
///
/// # Errors
/// When it cannot be read, and when another client has something else there.
pub(super) async fn read(ensemble: &Ensemble, path: &str) -> Result<Option<(i32, Control)>, Failure> {
    let node = ensemble.node(path, LONGEST_CONTROL_DATA).await;
    let Some(node) = node.map_err(|error| failed(path, &error))? else {
        return Ok(None);
    };
    let Node {
        data,
        is_readable,
        stat,
    } = node;
    let Some(stat) = stat.filter(|_| is_readable) else {
        return Err(failed(path, &EnsembleError::NoAuth));
    };
    let control = Control::parse(&data);
    // Of another client, or of more bytes than a control node has.
    if stat.data_length != 0 && control.v != 1 {
        return Err(Failure::usage(format!(
            "{path} is no control node of a lock: give the right one by --control"
        )));
    }
    Ok(Some((stat.version, control)))
}

/// There is no such control node.
pub(super) fn missing(path: &str, instead: &str) -> String {
    format!(
        "there is no control node {path}: give the right one by --control (for a lock of the operator it is \
         ROOT/control/NAMESPACE/NAME; or use `kubectl lockkeeper {instead}`)"
    )
}

pub(super) fn failed(path: &str, error: &EnsembleError) -> Failure {
    failure(error, &format!("cannot use the control node {path}"))
}
