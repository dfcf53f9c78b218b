//! A client of the ensemble, which connects to its servers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_lock::SessionKey;
use lockkeeper_lock::ensemble::{Closed, Ensemble, EnsembleError, EnsembleResult, Session};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::connection::FakeConnection;
use crate::link::LinkId;
use crate::shared::Shared;
use crate::state::ConnectionRecord;
use crate::time::Millis;

/// A client of the fake ensemble, by name: faults name the client that they affect.
#[derive(Clone)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) name: String,
}

impl Client {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn frozen_until(&self) -> Option<Instant> {
        let until = self.shared.state().frozen_until(&self.name)?;
        Some(self.shared.start + Duration::from_millis(until))
    }
}

impl Ensemble for Client {
    type Connection = FakeConnection;

    fn servers(&self) -> usize {
        self.shared.state().servers.len()
    }

    fn server(&self, index: usize) -> String {
        format!("server {index}")
    }

    async fn attach(
        &self,
        index: usize,
        resume: Option<&FakeConnection>,
        patience: Duration,
    ) -> EnsembleResult<FakeConnection> {
        self.connect(index, resume.map(|resume| resume.session), patience)
            .await
    }

    async fn resume(
        &self,
        index: usize,
        session: &SessionKey,
        session_timeout: Duration,
        patience: Duration,
    ) -> EnsembleResult<FakeConnection> {
        let session = Session {
            id: session.id,
            timeout: session_timeout,
        };
        self.connect(index, Some(session), patience).await
    }
}

impl Client {
    async fn connect(
        &self,
        index: usize,
        session: Option<Session>,
        patience: Duration,
    ) -> EnsembleResult<FakeConnection> {
        let unreachable = |reason: &str| EnsembleError::Unreachable {
            server: self.server(index),
            reason: reason.to_owned(),
        };
        let (confirmed, confirmation) = oneshot::channel();
        let (closed_sender, closed) = watch::channel(None);
        let number = {
            let mut state = self.shared.state();
            if !state.servers[index].is_up {
                return Err(unreachable("connection refused"));
            }
            let number = state.number();
            let record = ConnectionRecord {
                client: self.name.clone(),
                server: index,
                session: None,
                confirmed: Some(confirmed),
                closed: closed_sender,
                awaited: BTreeMap::new(),
                watches: BTreeMap::new(),
                last_heard: state.now,
                requests: VecDeque::new(),
            };
            state.connections.insert(number, record);
            state.send(LinkId::Up(number), move |state| state.connect(number, session));
            number
        };
        // If this future is dropped, the connection is dropped too.
        let mut connection = FakeConnection {
            shared: Arc::clone(&self.shared),
            number,
            session: Session {
                id: 0,
                timeout: Duration::ZERO,
            },
            closed,
        };
        match tokio::time::timeout(patience, confirmation).await {
            Ok(Ok(Ok(session))) => {
                connection.session = session;
                let mut state = self.shared.state();
                let third = session.timeout.as_millis() as Millis / 3;
                state.after(third, move |state| state.keep_alive(number));
                drop(state);
                Ok(connection)
            }
            Ok(Ok(Err(Closed::Expired))) => Err(EnsembleError::SessionExpired),
            Ok(Ok(Err(Closed::AuthFailed))) => Err(EnsembleError::AuthFailed),
            Ok(Ok(Err(Closed::Disconnected)) | Err(_)) => Err(unreachable("closed before the session began")),
            Err(_) => Err(unreachable("no answer in time")),
        }
    }
}
