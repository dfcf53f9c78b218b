//! The client's end: what the lock sees of the fake ensemble.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::link::LinkId;
use super::state::{Answer, Connection as Record, Millis, Outcome, Request, State};
use super::tree::Write;
use crate::ensemble::{
    Children, Closed, Connection, Created, Ensemble, EnsembleError, EnsembleResult, MultiError, Node,
    NodeEvent, Op, Session,
};

/// What clients and [`super::World`] share.
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// Something was added that may be due before the driver wakes.
    pub(super) changed: Notify,
    pub(super) start: Instant,
}

impl Shared {
    /// The state, at tokio's time.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.run(self.start.elapsed().as_millis() as Millis);
        self.changed.notify_one();
        state
    }
}

/// A client of the fake ensemble, by name: faults name the client that they are for.
#[derive(Clone)]
pub struct Client {
    pub(super) shared: Arc<Shared>,
    pub(super) name: String,
}

/// A connection of the fake ensemble.
pub struct FakeConnection {
    shared: Arc<Shared>,
    number: u64,
    session: Session,
    closed: watch::Receiver<Option<Closed>>,
}

impl State {
    /// The client heard of its server.
    pub(super) fn client_heard(&mut self, connection: u64) {
        let now = self.now;
        if let Some(record) = self.connections.get_mut(&connection) {
            record.last_heard = now;
        }
    }

    /// The client's end is closed: whatever it waits for it will not hear of.
    pub(super) fn client_closes(&mut self, connection: u64, why: Closed) {
        let Some(record) = self.connections.get_mut(&connection) else {
            return;
        };
        if record.closed.borrow().is_some() {
            return;
        }
        record.closed.send_replace(Some(why));
        record.awaited.clear();
        record.watches.clear();
        if let Some(confirmed) = record.confirmed.take() {
            let _ = confirmed.send(Err(why));
        }
        self.drop_link(LinkId::Down(connection));
    }

    /// The client closes the connection. Requests that are on their way are carried out, then the
    /// server hears that nobody waits for the answers.
    fn client_leaves(&mut self, connection: u64) {
        self.client_closes(connection, Closed::Disconnected);
        self.send(LinkId::Up(connection), move |state| state.end(connection));
    }

    /// The connection breaks: each request and answer that is on its way may be lost.
    pub(super) fn break_off(&mut self, connection: u64) {
        if self.rng.bool() {
            self.drop_link(LinkId::Up(connection));
        }
        self.client_leaves(connection);
    }

    /// Both ends have closed.
    pub(super) fn end(&mut self, connection: u64) {
        self.forget(connection);
        self.connections.remove(&connection);
    }

    fn frozen_until(&self, client: &str) -> Option<Millis> {
        self.frozen.get(client).copied().filter(|until| *until > self.now)
    }

    /// The client's library sends a ping every third of T, and gives up after two thirds without a
    /// word.
    fn keep_alive(&mut self, connection: u64) {
        let Some(record) = self.connections.get(&connection) else {
            return;
        };
        let Some(session) = record.session else { return };
        if record.closed.borrow().is_some() {
            return;
        }
        let third = session.timeout.as_millis() as Millis / 3;
        if let Some(until) = self.frozen_until(&record.client) {
            // What came meanwhile is read first.
            let delay = until - self.now + 1;
            return self.after(delay, move |state| state.keep_alive(connection));
        }
        let was_frozen = self
            .frozen
            .get(&record.client)
            .is_some_and(|until| *until + third > self.now);
        if self.now >= record.last_heard + 2 * third && !was_frozen {
            return self.client_leaves(connection);
        }
        self.send(LinkId::Up(connection), move |state| state.ping(connection));
        self.after(third, move |state| state.keep_alive(connection));
    }
}

impl Client {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn frozen_until(&self) -> Option<Instant> {
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
            let record = Record {
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
            let session = resume.map(|resume| resume.session);
            state.send(LinkId::Up(number), move |state| state.connect(number, session));
            number
        };
        // Also when this future is dropped, the connection goes with it.
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

impl FakeConnection {
    fn call(
        &self,
        request: Request,
        watcher: Option<oneshot::Sender<NodeEvent>>,
    ) -> impl Future<Output = Answer> + Send + use<> + 'static {
        let lost = MultiError {
            index: 0,
            error: EnsembleError::ConnectionLoss,
        };
        let mut state = self.shared.state();
        let (sender, answer) = oneshot::channel();
        let (connection, number) = (self.number, state.number());
        if let Some(record) = state.connections.get_mut(&connection)
            && record.closed.borrow().is_none()
        {
            record.awaited.insert(number, sender);
            if let Some(watcher) = watcher {
                record.watches.insert(number, watcher);
            }
            state.send(LinkId::Up(connection), move |state| {
                state.request(connection, number, request)
            });
        }
        answer.map(move |answer| answer.unwrap_or(Err(lost)))
    }

    fn ask(
        &self,
        request: Request,
    ) -> impl Future<Output = EnsembleResult<Outcome>> + Send + use<> + 'static {
        self.call(request, None)
            .map(|answer| answer.map_err(|failed| failed.error))
    }
}

fn unexpected<T>(_: Outcome) -> EnsembleResult<T> {
    Err(EnsembleError::Other("the answer to another request".to_owned()))
}

impl Connection for FakeConnection {
    fn session(&self) -> Session {
        self.session
    }

    fn closed(&self) -> impl Future<Output = Closed> + Send + 'static {
        let mut closed = self.closed.clone();
        async move {
            match closed.wait_for(Option::is_some).await {
                Ok(why) => (*why).unwrap_or(Closed::Disconnected),
                Err(_) => Closed::Disconnected,
            }
        }
    }

    fn is_intact(&self) -> bool {
        self.closed.borrow().is_none() && self.closed.has_changed().is_ok()
    }

    fn create_contender(
        &self,
        prefix: &str,
        data: Vec<u8>,
        version: i32,
    ) -> impl Future<Output = EnsembleResult<Created>> + Send + 'static {
        let prefix = prefix.to_owned();
        self.ask(Request::Write(Write::CreateContender {
            prefix,
            data,
            version,
        }))
        .map(|answer| match answer? {
            Outcome::Created(created) => Ok(created),
            other => unexpected(other),
        })
    }

    fn make_path(
        &self,
        path: &str,
        data: Vec<u8>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static {
        let path = path.to_owned();
        self.ask(Request::Write(Write::MakePath { path, data }))
            .map(|answer| answer.map(drop))
    }

    fn children(&self, path: &str) -> impl Future<Output = EnsembleResult<Children>> + Send + 'static {
        self.ask(Request::Children(path.to_owned()))
            .map(|answer| match answer? {
                Outcome::Children(children) => Ok(children),
                other => unexpected(other),
            })
    }

    fn node(&self, path: &str) -> impl Future<Output = EnsembleResult<Node>> + Send + 'static {
        self.ask(Request::Node(path.to_owned()))
            .map(|answer| match answer? {
                Outcome::Node(node) => Ok(node),
                other => unexpected(other),
            })
    }

    fn watch_node(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Node, impl Future<Output = NodeEvent> + Send + Unpin + 'static)>>
    + Send
    + 'static {
        let path = path.to_owned();
        let (sender, event) = oneshot::channel();
        let answer = self.call(Request::Watch(path), Some(sender));
        answer.map(|answer| match answer.map_err(|failed| failed.error)? {
            Outcome::Node(node) => Ok((node, event.map(|event| event.unwrap_or(NodeEvent::Disconnected)))),
            other => unexpected(other),
        })
    }

    fn watch_creation(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<Option<BoxFuture<'static, NodeEvent>>>> + Send + 'static {
        let (sender, event) = oneshot::channel();
        let answer = self.call(Request::WatchCreation(path.to_owned()), Some(sender));
        answer.map(|answer| match answer.map_err(|failed| failed.error)? {
            Outcome::Missing => Ok(Some(
                event
                    .map(|event| event.unwrap_or(NodeEvent::Disconnected))
                    .boxed(),
            )),
            Outcome::Done => Ok(None),
            other => unexpected(other),
        })
    }

    fn set_data(
        &self,
        path: &str,
        data: Vec<u8>,
        version: Option<i32>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static {
        let path = path.to_owned();
        self.ask(Request::Write(Write::SetData { path, data, version }))
            .map(|answer| answer.map(drop))
    }

    fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<(), MultiError>> + Send + 'static {
        self.call(Request::Write(Write::Multi(ops)), None)
            .map(|answer| answer.map(drop))
    }

    async fn close_session(self) {
        let _ = self.call(Request::CloseSession, None).await;
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        self.shared.state().client_leaves(self.number);
    }
}
