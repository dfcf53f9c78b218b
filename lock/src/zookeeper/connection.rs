//! One client, one server, one TCP connection.

mod creating;
mod identities;
mod inner;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use zookeeper_client as zk;

use self::creating::create_checked;
use self::inner::{Inner, lock};
use super::executor::Executor;
use super::handshake;
use super::rights::Rights;
use crate::ensemble::{
    Children, Closed, Connection, Created, EnsembleError, EnsembleResult, Incarnation, MultiError, Node,
    NodeEvent, Op, Session,
};
use crate::ticket::SessionKey;
use crate::token::FencingToken;

/// How long to wait until a session is ended. If that fails, it expires by itself.
const PATIENCE_FOR_CLOSING: Duration = Duration::from_secs(1);

/// A connection to one ZooKeeper server, which is useless after its first disconnection.
pub struct ZooKeeperConnection {
    inner: Arc<Inner>,
}

impl ZooKeeperConnection {
    pub(super) fn new(
        client: zk::Client,
        executor: Executor,
        ending: zk::Connector,
        target: String,
        chroot: String,
        acls: Rights,
    ) -> Self {
        let state = client.state_watcher();
        executor.start();
        Self {
            inner: Arc::new(Inner {
                client,
                state,
                ending,
                target,
                chroot,
                acls,
                identities: Mutex::default(),
                contender: Mutex::default(),
                executor,
            }),
        }
    }

    /// Takes over from the connection `before`, and shows the servers every identity that arrives in `followed` later.
    pub(super) fn follow(
        &self,
        identities: Vec<String>,
        followed: Option<watch::Receiver<Vec<String>>>,
        before: Option<&Self>,
    ) {
        let known = before.map_or_else(|| identities.clone(), Self::identities);
        let is_more = identities.len() > known.len();
        *lock(&self.inner.identities) = identities;
        *lock(&self.inner.contender) = before.and_then(|before| lock(&before.inner.contender).clone());
        if let Some(followed) = followed {
            // It holds only a weak reference to the connection, and ends with it.
            let following = identities::follow(Arc::downgrade(&self.inner), followed, is_more);
            self.inner.executor.run(following);
        }
    }

    /// Our identities, as shown to the servers over this connection.
    pub(super) fn identities(&self) -> Vec<String> {
        lock(&self.inner.identities).clone()
    }

    pub(super) fn info(&self) -> &zk::SessionInfo {
        self.inner.client.session()
    }

    /// Ends the client's task and its TCP connection; the session goes on. Before this, drop all waiting calls and
    /// watches.
    ///
    /// A server that gets the session over a new connection closes the old one. A client that noticed this would
    /// connect once more, and take the session away from its successor.
    pub(super) fn retire(&self) {
        self.inner.executor.stop();
    }

    /// Makes a call, and accepts only an answer that came over this very connection.
    fn call<T, F>(
        &self,
        call: impl FnOnce(Arc<Inner>) -> F + Send + 'static,
    ) -> impl Future<Output = EnsembleResult<T>> + Send + 'static
    where
        F: Future<Output = Result<T, zk::Error>> + Send,
        T: Send,
    {
        let inner = Arc::clone(&self.inner);
        async move {
            let answer = call(Arc::clone(&inner)).await;
            if !inner.is_intact() {
                // A new connection may already have replaced the old one, even with another session.
                return Err(match answer {
                    Err(zk::Error::SessionExpired) => EnsembleError::SessionExpired,
                    _ => EnsembleError::ConnectionLoss,
                });
            }
            Ok(answer?)
        }
    }
}

/// The event of a watch.
async fn event(watcher: zk::OneshotWatcher, inner: Arc<Inner>) -> NodeEvent {
    let event = watcher.changed().await;
    // Keeps `inner` until the watch has ended.
    drop(inner);
    match event.event_type {
        zk::EventType::NodeDeleted => NodeEvent::Deleted,
        zk::EventType::Session => NodeEvent::Disconnected,
        _ => NodeEvent::Changed,
    }
}

fn token(stat: &zk::Stat) -> FencingToken {
    FencingToken(stat.czxid)
}

fn children(names: Vec<String>, stat: &zk::Stat) -> Children {
    Children {
        names,
        parent: Incarnation {
            czxid: token(stat),
            version: stat.version,
        },
        owner: stat.ephemeral_owner,
    }
}

impl Connection for ZooKeeperConnection {
    fn session(&self) -> Session {
        let client = &self.inner.client;
        Session {
            id: client.session_id().0,
            timeout: client.session_timeout(),
        }
    }

    fn closed(&self) -> impl Future<Output = Closed> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move { inner.state.clone().changed().await.into() }
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
        let prefix = prefix.to_owned();
        self.call(move |inner| async move {
            let options = zk::CreateMode::EphemeralSequential.with_acls(inner.acls.of_contenders());
            let whole = inner.whole(&prefix);
            let known = lock(&inner.identities).len();
            let (whole, stat) = create_checked(&inner.client, &whole, &data, &options, version).await?;
            let path = whole[inner.chroot.len()..].to_owned();
            *lock(&inner.contender) = Some(whole);
            if lock(&inner.identities).len() > known {
                // Identities arrived while it was being created, perhaps too late for it.
                inner.open_contender().await;
            }
            Ok(Created {
                path,
                czxid: token(&stat),
                owner: stat.ephemeral_owner,
            })
        })
    }

    fn make_path(
        &self,
        path: &str,
        data: Vec<u8>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static {
        let path = path.to_owned();
        self.call(move |inner| async move {
            let path = inner.whole(&path);
            let options = zk::CreateMode::Persistent.with_acls(inner.acls.of_others());
            if let Some((parent, _)) = path.rsplit_once('/')
                && !parent.is_empty()
                && inner.client.check_stat(parent).await?.is_none()
            {
                inner.client.mkdir(parent, &options).await?;
            }
            match inner.client.create(&path, &data, &options).await {
                Ok(_) | Err(zk::Error::NodeExists) => Ok(()),
                Err(error) => Err(error),
            }
        })
    }

    fn children(&self, path: &str) -> impl Future<Output = EnsembleResult<Children>> + Send + 'static {
        let path = path.to_owned();
        self.call(move |inner| async move {
            let (names, stat) = inner.client.get_children(&inner.whole(&path)).await?;
            Ok(children(names, &stat))
        })
    }

    fn node(&self, path: &str) -> impl Future<Output = EnsembleResult<Node>> + Send + 'static {
        let path = path.to_owned();
        self.call(move |inner| async move { inner.client.get_data(&inner.whole(&path)).await.map(node) })
    }

    fn watch_node(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Node, impl Future<Output = NodeEvent> + Send + Unpin + 'static)>>
    + Send
    + 'static {
        let path = path.to_owned();
        let inner = Arc::clone(&self.inner);
        let watched =
            self.call(move |inner| async move { inner.client.get_and_watch_data(&inner.whole(&path)).await });
        async move {
            let (data, stat, watcher) = watched.await?;
            Ok((node((data, stat)), event(watcher, inner).boxed()))
        }
    }

    fn watch_children(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<(Children, BoxFuture<'static, NodeEvent>)>> + Send + 'static
    {
        let path = path.to_owned();
        let inner = Arc::clone(&self.inner);
        let watched = self
            .call(move |inner| async move { inner.client.get_and_watch_children(&inner.whole(&path)).await });
        async move {
            let (names, stat, watcher) = watched.await?;
            Ok((children(names, &stat), event(watcher, inner).boxed()))
        }
    }

    fn watch_creation(
        &self,
        path: &str,
    ) -> impl Future<Output = EnsembleResult<Option<BoxFuture<'static, NodeEvent>>>> + Send + 'static {
        let path = path.to_owned();
        let inner = Arc::clone(&self.inner);
        let watched = self
            .call(move |inner| async move { inner.client.check_and_watch_stat(&inner.whole(&path)).await });
        async move {
            let (stat, watcher) = watched.await?;
            Ok(stat.is_none().then(|| event(watcher, inner).boxed()))
        }
    }

    fn set_data(
        &self,
        path: &str,
        data: Vec<u8>,
        version: Option<i32>,
    ) -> impl Future<Output = EnsembleResult<()>> + Send + 'static {
        let path = path.to_owned();
        self.call(move |inner| async move {
            inner
                .client
                .set_data(&inner.whole(&path), &data, version)
                .await
                .map(drop)
        })
    }

    fn multi(&self, ops: Vec<Op>) -> impl Future<Output = Result<(), MultiError>> + Send + 'static {
        let inner = Arc::clone(&self.inner);
        async move {
            let mut writer = inner.client.new_multi_writer();
            for (index, op) in ops.iter().enumerate() {
                match op {
                    // -1: any version.
                    Op::Check { path } => writer.add_check_version(&inner.whole(path), -1),
                    Op::SetData { path, data, version } => {
                        writer.add_set_data(&inner.whole(path), data, *version)
                    }
                    Op::Create { path, data } => {
                        let options = zk::CreateMode::Persistent.with_acls(inner.acls.of_others());
                        writer.add_create(&inner.whole(path), data, &options)
                    }
                    Op::Delete { path, version } => writer.add_delete(&inner.whole(path), *version),
                }
                .map_err(|error| MultiError {
                    index,
                    error: error.into(),
                })?;
            }
            let commit = writer.commit();
            let answer = commit.await;
            let lost = MultiError {
                index: 0,
                error: EnsembleError::ConnectionLoss,
            };
            match answer {
                Ok(_) if inner.is_intact() => Ok(()),
                Ok(_) => Err(lost),
                Err(zk::MultiWriteError::OperationFailed { index, source }) if inner.is_intact() => {
                    Err(MultiError {
                        index,
                        error: source.into(),
                    })
                }
                Err(zk::MultiWriteError::OperationFailed { .. }) => Err(lost),
                Err(zk::MultiWriteError::RequestFailed { source }) => Err(MultiError {
                    index: 0,
                    error: source.into(),
                }),
            }
        }
    }

    fn key(&self) -> impl Future<Output = Option<SessionKey>> + Send + 'static {
        let session = self.info().clone();
        async move {
            let key = handshake::key(session).await;
            if let Err(error) = &key {
                tracing::info!(%error, "Another process could not go on with our session");
            }
            key.ok()
        }
    }

    fn adopt(&self, path: &str) {
        *lock(&self.inner.contender) = Some(self.inner.whole(path));
        // The process before us may have had fewer identities.
        let inner = Arc::downgrade(&self.inner);
        self.inner.executor.run(async move {
            if let Some(inner) = inner.upgrade() {
                inner.open_contender().await;
            }
        });
    }

    async fn close_session(self) {
        // The session is detached, so no drop can end it. A second client, which is not detached, takes it over and
        // ends it when it is dropped. Best effort: a session that stays expires by itself.
        let Some(Inner {
            client,
            ending,
            target,
            ..
        }) = Arc::into_inner(self.inner)
        else {
            return;
        };
        let session = client.into_session();
        let ended = async {
            let executor = Executor::default();
            let Ok(last) = executor
                .enter(ending.with_session(session).connect(&target))
                .await
            else {
                return;
            };
            let mut state = last.state_watcher();
            executor.start();
            drop(last);
            while !state.changed().await.is_terminated() {}
        };
        let _ = tokio::time::timeout(PATIENCE_FOR_CLOSING, ended).await;
    }
}

fn node((data, stat): (Vec<u8>, zk::Stat)) -> Node {
    Node {
        data,
        czxid: token(&stat),
        version: stat.version,
        owner: stat.ephemeral_owner,
    }
}
