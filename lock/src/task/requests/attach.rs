//! Gets a connection: tries the servers in turn.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Ensemble, EnsembleError};
use crate::task::haste::Haste;

/// A new connection, and the moment from which the leader counts the session anew.
pub(in crate::task) struct Attached<C> {
    /// Just before this server was asked.
    pub(in crate::task) asked: BootInstant,
    pub(in crate::task) server: usize,
    pub(in crate::task) connection: C,
}

/// Tries the servers in turn until one takes the session, or refuses for good.
pub(in crate::task) async fn attach<E: Ensemble, C: Clock>(
    ensemble: Arc<E>,
    clock: C,
    session: Option<Arc<E::Connection>>,
    first: usize,
    haste: Haste,
    patience: Duration,
) -> Result<Attached<E::Connection>, EnsembleError> {
    // Only a session that comes back needs the pause.
    let wait = session.as_ref().map_or(Duration::ZERO, |_| haste.wait());
    if !wait.is_zero() {
        clock.sleep(wait).await;
    }
    let mut pause = Duration::from_millis(50);
    let mut is_told = false;
    loop {
        let mut last = None;
        for server in (first..first + ensemble.servers()).map(|index| index % ensemble.servers()) {
            let asked = clock.now();
            match ensemble.attach(server, session.as_deref(), patience).await {
                Ok(connection) => {
                    return Ok(Attached {
                        asked,
                        server,
                        connection,
                    });
                }
                Err(error) if error.is_connection() => {
                    tracing::debug!(server = ensemble.server(server), %error, "Server not reached");
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        if session.is_none()
            && let Some(objection) = ensemble.objection().await
        {
            return Err(objection);
        }
        if let (Some(error), false) = (last, is_told) {
            tracing::warn!(%error, "No server reached; trying again");
            is_told = true;
        }
        let (now, longest) = haste.pause(pause);
        clock.sleep(now).await;
        pause = (pause * 2).min(longest);
    }
}
