//! An ensemble that records what the lock's task sends to it, and is answered. The task under it is the real one.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockkeeper_lock::ensemble::{
    Children, Closed, Connection, Created, Ensemble, EnsembleError, EnsembleResult, MultiError, Node,
    NodeEvent, Op, Session,
};
use lockkeeper_lock::{ContenderData, SessionKey, is_contender};

use crate::record::{Micros, Pen, What};

/// The ensemble of one contender, in front of another one.
#[derive(Debug)]
pub(crate) struct Recording<E> {
    inner: E,
    book: Book,
}

/// A connection in front of another one.
#[derive(Debug)]
pub(crate) struct RecordingConnection<C> {
    inner: Arc<C>,
    book: Book,
}

/// What a connection writes into the record.
#[derive(Clone, Debug)]
struct Book {
    pen: Pen,
    root: String,
    /// The answer to the next write gets lost, with its connection.
    loses_answer: Arc<AtomicBool>,
}

/// Loses the answer to a write of the task.
#[derive(Clone, Debug)]
pub(crate) struct AnswerLoser(Arc<AtomicBool>);

impl AnswerLoser {
    /// The next write that is answered is not answered for the task: its connection is lost.
    pub(crate) fn lose_one(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl<E> Recording<E> {
    /// Records with `pen` what concerns the contenders below `root`.
    pub(crate) fn new(inner: E, root: impl Into<String>, pen: Pen) -> (Self, AnswerLoser) {
        let loses_answer = Arc::new(AtomicBool::new(false));
        let book = Book {
            pen,
            root: root.into(),
            loses_answer: Arc::clone(&loses_answer),
        };
        (Self { inner, book }, AnswerLoser(loses_answer))
    }

    fn connection<C>(&self, inner: C) -> RecordingConnection<C> {
        RecordingConnection {
            inner: Arc::new(inner),
            book: self.book.clone(),
        }
    }
}

impl<E: Ensemble> Ensemble for Recording<E> {
    type Connection = RecordingConnection<E::Connection>;

    fn servers(&self) -> usize {
        self.inner.servers()
    }

    fn server(&self, index: usize) -> String {
        self.inner.server(index)
    }

    async fn attach(
        &self,
        index: usize,
        resume: Option<&Self::Connection>,
        patience: Duration,
    ) -> EnsembleResult<Self::Connection> {
        let resume = resume.map(|before| &*before.inner);
        let inner = self.inner.attach(index, resume, patience).await?;
        Ok(self.connection(inner))
    }

    async fn resume(
        &self,
        index: usize,
        session: &SessionKey,
        session_timeout: Duration,
        patience: Duration,
    ) -> EnsembleResult<Self::Connection> {
        let resuming = self.inner.resume(index, session, session_timeout, patience);
        Ok(self.connection(resuming.await?))
    }

    async fn objection(&self) -> Option<EnsembleError> {
        self.inner.objection().await
    }
}

impl Book {
    /// The name of the contender at a path.
    fn contender(&self, path: &str) -> Option<String> {
        let name = path.strip_prefix(&self.root)?.strip_prefix('/')?;
        is_contender(name).then(|| name.to_owned())
    }

    /// An answer about the node at `path` has arrived.
    fn look(&self, path: &str, result: Result<Option<&Node>, &EnsembleError>) {
        let Some(name) = self.contender(path) else { return };
        match result {
            Ok(Some(node)) => {
                let lease = ContenderData::parse(&node.data).lease();
                self.pen.write(What::Shown {
                    name,
                    version: node.version,
                    lease: lease.filter(|_| node.is_ephemeral()),
                });
            }
            Err(EnsembleError::NoNode) => drop(self.pen.write(What::Missing(name))),
            Ok(None) | Err(_) => {}
        }
    }

    fn happened(&self, path: &str, event: NodeEvent) {
        if event == NodeEvent::Deleted
            && let Some(name) = self.contender(path)
        {
            self.pen.write(What::Missing(name));
        }
    }

    /// What a transaction is to the lock: the entry of its sending.
    fn request(&self, ops: &[Op]) -> Option<What> {
        let mut own = None;
        for op in ops {
            match op {
                Op::SetData { path, .. } => own = self.contender(path).or(own),
                Op::Delete { path, version } => {
                    let of = self.contender(path)?;
                    return Some(match (own, version) {
                        (Some(name), &Some(version)) => What::Taking { name, of, version },
                        _ => What::Releasing(of),
                    });
                }
                Op::Check { .. } | Op::Create { .. } => {}
            }
        }
        own.map(What::Renewing)
    }

    fn sent(&self, what: What) -> (What, Micros) {
        let sent = self.pen.write(what.clone());
        (what, sent)
    }

    /// Whether the answer that has arrived gets lost.
    fn loses(&self) -> bool {
        self.loses_answer.swap(false, Ordering::Relaxed)
    }

    /// The answer to a write has arrived; an error is about the node at the path.
    fn answered(&self, request: Option<(What, Micros)>, error: Option<(&EnsembleError, &str)>) {
        if let Some((EnsembleError::NoNode, path)) = error
            && let Some(name) = self.contender(path)
        {
            self.pen.write(What::Missing(name));
        }
        let Some((what, sent)) = request else { return };
        let error = error.map(|(error, _)| error);
        let answer = match (what, error) {
            (What::Renewing(name) | What::Taking { name, .. }, None) => What::Acknowledged(name, sent),
            (
                What::Renewing(name) | What::Taking { name, .. },
                Some(EnsembleError::NoNode | EnsembleError::BadVersion),
            ) => What::Refused(name, sent),
            (What::Releasing(name), None) => What::Missing(name),
            _ => return,
        };
        self.pen.write(answer);
    }
}

fn path_of(op: &Op) -> &str {
    match op {
        Op::Check { path } | Op::SetData { path, .. } | Op::Create { path, .. } | Op::Delete { path, .. } => {
            path
        }
    }
}

impl<C: Connection> Connection for RecordingConnection<C> {
    fn session(&self) -> Session {
        self.inner.session()
    }

    fn closed(&self) -> impl Future<Output = Closed> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.closed().await }
    }

    fn is_intact(&self) -> bool {
        self.inner.is_intact()
    }

    fn create_contender(
        &self,
        prefix: &str,
        data: Vec<u8>,
        version: i32,
    ) -> impl Future<Output = EnsembleResult<Created>> + Send + 'static {
        let (inner, book, prefix) = (Arc::clone(&self.inner), self.book.clone(), prefix.to_owned());
        async move {
            let begin = prefix.rsplit('/').next().unwrap_or_default().to_owned();
            let sent = book.pen.write(What::Creating(begin));
            let result = inner.create_contender(&prefix, data, version).await;
            if let Ok(created) = &result
                && let Some(name) = book.contender(&created.path)
            {
                if book.loses() {
                    return Err(EnsembleError::ConnectionLoss);
                }
                book.pen.write(What::Created { sent, name });
            }
            result
        }
    }

    fn make_path(
        &self,
        path: &str,
        data: Vec<u8>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static {
        let (inner, path) = (Arc::clone(&self.inner), path.to_owned());
        async move { inner.make_path(&path, data).await }
    }

    fn children(&self, path: &str) -> impl Future<Output = EnsembleResult<Children>> + Send + 'static {
        let (inner, book, path) = (Arc::clone(&self.inner), self.book.clone(), path.to_owned());
        async move {
            let children = inner.children(&path).await?;
            if path == book.root {
                let names = children.names.iter().filter(|name| is_contender(name));
                book.pen.write(What::Listed(names.cloned().collect()));
            }
            Ok(children)
        }
    }

    fn node(&self, path: &str) -> impl Future<Output = EnsembleResult<Node>> + Send + 'static {
        let (inner, book, path) = (Arc::clone(&self.inner), self.book.clone(), path.to_owned());
        async move {
            let result = inner.node(&path).await;
            book.look(&path, result.as_ref().map(Some));
            result
        }
    }

    fn watch_node(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Node, impl Future<Output = NodeEvent> + Send + Unpin + 'static)>>
    + Send
    + 'static {
        let (inner, book, path) = (Arc::clone(&self.inner), self.book.clone(), path.to_owned());
        async move {
            let result = inner.watch_node(&path).await;
            book.look(&path, result.as_ref().map(|(node, _)| Some(node)));
            let (node, event) = result?;
            let event: BoxFuture<'static, NodeEvent> = event.boxed();
            Ok((node, event.inspect(move |event| book.happened(&path, *event))))
        }
    }

    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>> + Send + 'static
    {
        let (inner, book, path) = (Arc::clone(&self.inner), self.book.clone(), path.to_owned());
        async move {
            let result = inner.watch_children(&path).await;
            book.look(&path, result.as_ref().map(|_| None));
            let (children, event) = result?;
            let event = event.inspect(move |event| book.happened(&path, *event));
            Ok((children, event.boxed()))
        }
    }

    fn watch_creation(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<Option<BoxFuture<'static, NodeEvent>>>> + Send + 'static {
        let (inner, path) = (Arc::clone(&self.inner), path.to_owned());
        async move { inner.watch_creation(&path).await }
    }

    fn set_data(
        &self,
        path: &str,
        data: Vec<u8>,
        version: Option<i32>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static {
        let (inner, book, path) = (Arc::clone(&self.inner), self.book.clone(), path.to_owned());
        async move {
            let request = book
                .contender(&path)
                .map(What::Renewing)
                .map(|what| book.sent(what));
            let result = inner.set_data(&path, data, version).await;
            if book.loses() {
                return Err(EnsembleError::ConnectionLoss);
            }
            book.answered(request, result.as_ref().err().map(|error| (error, path.as_str())));
            result
        }
    }

    fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<(), MultiError>> + Send + 'static {
        let (inner, book) = (Arc::clone(&self.inner), self.book.clone());
        async move {
            let paths: Vec<String> = ops.iter().map(|op| path_of(op).to_owned()).collect();
            let request = book.request(&ops).map(|what| book.sent(what));
            let result = inner.multi(ops).await;
            if book.loses() {
                return Err(MultiError {
                    index: 0,
                    error: EnsembleError::ConnectionLoss,
                });
            }
            let error = result.as_ref().err();
            let error = error
                .map(|MultiError { index, error }| (error, paths.get(*index).map_or("", String::as_str)));
            book.answered(request, error);
            result
        }
    }

    fn key(&self) -> impl Future<Output = Option<SessionKey>> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.key().await }
    }

    fn adopt(&self, path: &str) {
        self.inner.adopt(path);
    }

    async fn close_session(self) {
        // Best effort, as in the real one: while a request waits, the session is left to expire.
        if let Some(inner) = Arc::into_inner(self.inner) {
            inner.close_session().await;
        }
    }
}
