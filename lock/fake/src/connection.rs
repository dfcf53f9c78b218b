//! One connection of a client, which sends the requests of the lock as messages to a server.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockkeeper_lock::ensemble::{
    Children, Closed, Connection, Created, EnsembleError, EnsembleResult, MultiError, Node, NodeEvent, Op,
    Session,
};
use lockkeeper_lock::{SESSION_PASSWORD_LEN, SessionKey};
use tokio::sync::{oneshot, watch};

use crate::link::LinkId;
use crate::messages::{Answer, Outcome, Request};
use crate::shared::Shared;
use crate::tree::Write;

pub struct FakeConnection {
    pub(crate) shared: Arc<Shared>,
    pub(crate) number: u64,
    pub(crate) session: Session,
    pub(crate) closed: watch::Receiver<Option<Closed>>,
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

    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>> + Send + 'static
    {
        let (sender, event) = oneshot::channel();
        let answer = self.call(Request::WatchChildren(path.to_owned()), Some(sender));
        answer.map(|answer| match answer.map_err(|failed| failed.error)? {
            Outcome::Children(children) => Ok((
                children,
                event
                    .map(|event| event.unwrap_or(NodeEvent::Disconnected))
                    .boxed(),
            )),
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

    fn key(&self) -> impl Future<Output = Option<SessionKey>> + Send + 'static {
        // This ensemble knows its sessions by their numbers alone.
        let key = SessionKey {
            id: self.session.id,
            password: [0; SESSION_PASSWORD_LEN],
        };
        std::future::ready(Some(key))
    }

    fn adopt(&self, _: &str) {}

    async fn close_session(self) {
        let _ = self.call(Request::CloseSession, None).await;
    }
}

impl Drop for FakeConnection {
    fn drop(&mut self) {
        self.shared.state().client_leaves(self.number);
    }
}
