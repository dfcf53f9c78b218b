//! Deletes a contender, and records that its holder released.

use std::sync::Arc;

use crate::ensemble::{Connection, EnsembleError, EnsembleResult, Op};
use crate::record::Control;
use crate::task::past::Farewell;

/// Deletes the contender, and records in the same transaction that this is a clean release.
pub(in crate::task) async fn delete<C: Connection>(
    connection: Arc<C>,
    contender: String,
    control_path: String,
    is_provisioned: bool,
    mut clean: Option<(Farewell, Option<(Control, i32)>)>,
) -> EnsembleResult<()> {
    let delete = Op::Delete {
        path: contender,
        version: None,
    };
    loop {
        let Some((farewell, known)) = &mut clean else {
            return connection
                .multi(vec![delete])
                .await
                .map_err(|failed| failed.error);
        };
        let (control, version) = match known.take() {
            Some(known) => known,
            None => match connection.node(&control_path).await {
                Ok(node) => (Control::parse(&node.data), node.version),
                // We may not create the control node.
                Err(EnsembleError::NoNode) if is_provisioned => {
                    clean = None;
                    continue;
                }
                Err(EnsembleError::NoNode) => {
                    match connection.make_path(&control_path, Vec::new()).await {
                        Err(EnsembleError::NoAuth) => clean = None,
                        made => made?,
                    }
                    continue;
                }
                // No right on the control node: the release matters more than its record.
                Err(EnsembleError::NoAuth) => {
                    clean = None;
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let data = farewell.write(control);
        let set = Op::SetData {
            path: control_path.clone(),
            data,
            version: Some(version),
        };
        match connection.multi(vec![set, delete.clone()]).await {
            Ok(()) => return Ok(()),
            // Another client wrote to the control node or deleted it: read again.
            Err(failed)
                if failed.index == 0
                    && matches!(failed.error, EnsembleError::BadVersion | EnsembleError::NoNode) => {}
            Err(failed) if failed.index == 0 && failed.error == EnsembleError::NoAuth => clean = None,
            Err(failed) => return Err(failed.error),
        }
    }
}
