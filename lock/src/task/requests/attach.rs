//! Gets a connection: tries the servers in turn.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Ensemble, EnsembleError};
use crate::task::link::Session;
use crate::task::reconnect_pauses::Haste;

/// A new connection, and the moment from which the leader counts the session anew.
pub(in crate::task) struct Attached<C> {
    /// Just before this server was asked.
    pub(in crate::task) asked: BootInstant,
    pub(in crate::task) server: usize,
    pub(in crate::task) connection: C,
}

/// How long each server may take to answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::task) struct PatienceForServers {
    pub(in crate::task) first: Duration,
    /// For a session that is to begin, patience doubles up to this after each round in which no server has answered: to
    /// begin one is a quorum write, and all disks may be slow. To take over one that is there is none, and has no time.
    pub(in crate::task) longest: Duration,
}

/// Tries the servers in turn until one takes the session, or refuses for good.
pub(in crate::task) async fn attach<E: Ensemble, C: Clock>(
    ensemble: Arc<E>,
    clock: C,
    session: Session<Arc<E::Connection>>,
    first: usize,
    haste: Haste,
    patience: PatienceForServers,
) -> Result<Attached<E::Connection>, EnsembleError> {
    // Only a session that comes back needs the pause.
    let wait = match session {
        Session::Ours { .. } => haste.wait(),
        Session::Left(_) | Session::New => Duration::ZERO,
    };
    if !wait.is_zero() {
        clock.sleep(wait).await;
    }
    let mut pause = Duration::from_millis(50);
    let mut is_told = false;
    let PatienceForServers {
        first: mut patience,
        longest: longest_patience,
    } = patience;
    loop {
        let mut last = None;
        for server in (first..first + ensemble.servers()).map(|index| index % ensemble.servers()) {
            let asked = clock.now();
            let attached = match &session {
                Session::New => ensemble.attach(server, None, patience).await,
                Session::Ours { last, .. } => ensemble.attach(server, Some(last), patience).await,
                Session::Left(ticket) => {
                    let timeout = ticket.session_timeout;
                    ensemble.resume(server, &ticket.session, timeout, patience).await
                }
            };
            match attached {
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
        if matches!(session, Session::New) {
            if let Some(objection) = ensemble.objection().await {
                return Err(objection);
            }
            patience = (patience * 2).min(longest_patience.max(patience));
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
