//! A server: carries out the requests of its clients, and the commits of the leader.

use lockkeeper_lock::ensemble::{Closed, EnsembleError, EnsembleResult, MultiError, NodeEvent, Session};

use crate::link::LinkId;
use crate::messages::{Answer, Origin, Outcome, Pending, Request};
use crate::state::{State, Watch};
use crate::time::Millis;
use crate::tree::{self, Change};

impl State {
    fn serves(&self, server: usize) -> bool {
        self.servers[server].is_up && self.servers[server].is_in_sync
    }

    /// The session of a connection, while its server knows the connection.
    fn served(&self, connection: u64) -> Option<(usize, Session)> {
        let record = self.connections.get(&connection)?;
        let is_known = self.servers[record.server].connections.contains(&connection);
        is_known.then_some((record.server, record.session?))
    }

    /// A client sent a message of a session. If a follower receives it, the other servers learn of it from the answer
    /// to the leader's next ping.
    fn heard(&mut self, server: usize, session: i64) {
        if server == self.leader {
            self.touch(session);
        } else {
            self.servers[server].touched.insert(session);
        }
    }

    pub(crate) fn connect(&mut self, connection: u64, resume: Option<Session>) {
        let Some(server) = self.connections.get(&connection).map(|record| record.server) else {
            return;
        };
        if !self.serves(server) {
            return self.hang_up(connection, Closed::Disconnected);
        }
        let epoch = self.epoch;
        let at_leader = move |state: &mut Self| match resume {
            None => state.submit(Pending::NewSession { connection, server }),
            Some(session) => {
                // The leader uses the timeout that the session's server sent last.
                let session = Session {
                    timeout: state.negotiated(server),
                    ..session
                };
                if let Some(record) = state.sessions.get_mut(&session.id) {
                    record.owner = server;
                    record.timeout = session.timeout.as_millis() as Millis;
                }
                let is_alive = state.touch(session.id);
                let confirm = move |state: &mut Self| match is_alive {
                    true => state.confirm(connection, session),
                    false => state.hang_up(connection, Closed::Expired),
                };
                if server == state.leader {
                    confirm(state);
                } else {
                    state.send(LinkId::ToFollower(server), confirm);
                }
            }
        };
        if server == self.leader {
            at_leader(self);
        } else {
            self.send(LinkId::ToLeader(server), move |state| {
                if state.epoch == epoch {
                    at_leader(state);
                }
            });
        }
    }

    /// Confirms a session to a client over a new connection.
    pub(crate) fn confirm(&mut self, connection: u64, session: Session) {
        let Some(record) = self.connections.get_mut(&connection) else {
            return;
        };
        record.session = Some(session);
        let server = record.server;
        // A client has only one connection.
        let others: Vec<u64> = self.servers[server].connections.iter().copied().collect();
        for other in others {
            if self.served(other).is_some_and(|(_, old)| old.id == session.id) {
                self.hang_up(other, Closed::Disconnected);
            }
        }
        self.servers[server].connections.insert(connection);
        self.send(LinkId::Down(connection), move |state| {
            state.client_heard(connection);
            if let Some(record) = state.connections.get_mut(&connection)
                && let Some(confirmed) = record.confirmed.take()
            {
                let _ = confirmed.send(Ok(session));
            }
        });
    }

    /// The server closes a connection, after the answers that it has sent already.
    pub(crate) fn hang_up(&mut self, connection: u64, why: Closed) {
        self.forget(connection);
        self.send(LinkId::Down(connection), move |state| {
            state.client_closes(connection, why);
            state.end(connection);
        });
    }

    /// The server forgets a connection and its watches.
    pub(crate) fn forget(&mut self, connection: u64) {
        let Some(server) = self.connections.get(&connection).map(|record| record.server) else {
            return;
        };
        let server = &mut self.servers[server];
        server.connections.remove(&connection);
        server.watches.retain(|watch| watch.connection != connection);
    }

    /// A keep-alive. Any server answers it from its own knowledge.
    pub(crate) fn ping(&mut self, connection: u64) {
        let Some((server, session)) = self.served(connection) else {
            return;
        };
        self.heard(server, session.id);
        self.send(LinkId::Down(connection), move |state| {
            state.client_heard(connection)
        });
    }

    pub(crate) fn request(&mut self, connection: u64, number: u64, request: Request) {
        let Some((server, session)) = self.served(connection) else {
            return;
        };
        self.heard(server, session.id);
        let origin = Origin {
            connection,
            server,
            number,
        };
        let session = session.id;
        let request = self.throttle(connection, request);
        let (queued, pending) = match request {
            Request::Write(write) => (
                None,
                Some(Pending::Write {
                    origin,
                    session,
                    write,
                }),
            ),
            Request::CloseSession => (None, Some(Pending::CloseSession { origin, session })),
            read => (Some(read), None),
        };
        if let Some(record) = self.connections.get_mut(&connection) {
            record.requests.push_back((number, queued));
        }
        match pending {
            None => self.serve_reads(connection),
            Some(pending) if server == self.leader => self.submit(pending),
            Some(pending) => {
                let epoch = self.epoch;
                self.send(LinkId::ToLeader(server), move |state| {
                    if state.epoch == epoch {
                        state.submit(pending);
                    }
                });
            }
        }
    }

    /// The request, or a refusal if the server is overloaded.
    fn throttle(&mut self, connection: u64, request: Request) -> Request {
        let client = self.connections.get(&connection).map(|record| &record.client);
        let left = client.and_then(|client| self.throttled.get_mut(client));
        match (left, request) {
            (_, Request::CloseSession) => Request::CloseSession,
            (Some(left), _) if *left > 0 => {
                *left -= 1;
                Request::Throttled
            }
            (_, request) => request,
        }
    }

    /// Answers the reads at the front of a connection's queue from this server's own tree.
    fn serve_reads(&mut self, connection: u64) {
        loop {
            let Some((server, _)) = self.served(connection) else {
                return;
            };
            let Some(record) = self.connections.get_mut(&connection) else {
                return;
            };
            if !matches!(record.requests.front(), Some((_, Some(_)))) {
                return;
            }
            let Some((number, Some(read))) = record.requests.pop_front() else {
                return;
            };
            let answer = self.read(server, connection, number, read);
            self.answer(
                connection,
                number,
                answer.map_err(|error| MultiError { index: 0, error }),
            );
        }
    }

    fn read(
        &mut self,
        server: usize,
        connection: u64,
        number: u64,
        read: Request,
    ) -> EnsembleResult<Outcome> {
        if matches!(read, Request::Throttled) {
            return Err(EnsembleError::Throttled);
        }
        let path = match &read {
            Request::Children(path)
            | Request::Node(path)
            | Request::Watch(path)
            | Request::WatchChildren(path)
            | Request::WatchCreation(path) => path,
            Request::Write(_) | Request::CloseSession | Request::Throttled => unreachable!("not a read"),
        };
        if self.is_forbidden(path) && !matches!(read, Request::WatchCreation(_)) {
            return Err(EnsembleError::NoAuth);
        }
        let tree = &self.servers[server].tree;
        match read {
            Request::Children(path) => tree.listing(&path).map(Outcome::Children),
            Request::Watch(path) => {
                let node = tree.node(&path)?;
                self.watch(server, path, connection, number, false);
                Ok(Outcome::Node(node))
            }
            Request::WatchChildren(path) => {
                let children = tree.listing(&path)?;
                self.watch(server, path, connection, number, true);
                Ok(Outcome::Children(children))
            }
            Request::WatchCreation(path) => match tree.node(&path) {
                Ok(_) => Ok(Outcome::Done),
                Err(_) => {
                    self.watch(server, path, connection, number, false);
                    Ok(Outcome::Missing)
                }
            },
            _ => tree.node(path).map(Outcome::Node),
        }
    }

    fn watch(&mut self, server: usize, path: String, connection: u64, number: u64, is_for_children: bool) {
        self.servers[server].watches.push(Watch {
            path,
            connection,
            number,
            is_for_children,
        });
    }

    pub(crate) fn is_forbidden(&self, path: &str) -> bool {
        self.forbidden.iter().any(|prefix| path.starts_with(prefix))
    }

    pub(crate) fn is_protected(&self, path: &str) -> bool {
        let is_it = |prefix: &String| path.starts_with(prefix);
        self.is_forbidden(path) || self.protected.iter().any(is_it)
    }

    fn answer(&mut self, connection: u64, number: u64, answer: Answer) {
        self.send(LinkId::Down(connection), move |state| {
            state.client_heard(connection);
            if let Some(record) = state.connections.get_mut(&connection)
                && let Some(awaited) = record.awaited.remove(&number)
            {
                let _ = awaited.send(answer);
            }
        });
    }

    /// A server carries out the next transaction of the log.
    pub(crate) fn apply(&mut self, server: usize) {
        let index = self.servers[server].applied;
        let Some(entry) = self.log.get(index) else { return };
        self.servers[server].applied += 1;
        let zxid = entry.zxid;
        let changes = entry.changes.clone();
        let (origin, began, ended) = (entry.origin.clone(), entry.began, entry.ended);
        for change in &changes {
            self.servers[server].tree.apply(zxid, change);
            self.fire(server, change);
        }
        if let Some((connection, session)) = began
            && self.connections.get(&connection).map(|record| record.server) == Some(server)
        {
            self.confirm(connection, session);
        }
        if let Some((origin, answer)) = origin
            && origin.server == server
            && self.served(origin.connection).is_some()
        {
            self.committed(origin, answer);
        }
        if let Some(session) = ended {
            let connections: Vec<u64> = self.servers[server].connections.iter().copied().collect();
            for connection in connections {
                if self.served(connection).is_some_and(|(_, old)| old.id == session) {
                    self.hang_up(connection, Closed::Expired);
                }
            }
        }
    }

    /// Answers a write of one of the server's own clients.
    fn committed(&mut self, origin: Origin, answer: Answer) {
        if let Some(record) = self.connections.get_mut(&origin.connection) {
            debug_assert_eq!(
                record.requests.front().map(|(number, _)| *number),
                Some(origin.number)
            );
            record.requests.pop_front();
        }
        // Another server serves the session now: this connection is an old one.
        if matches!(&answer, Err(failed) if failed.error == EnsembleError::SessionMoved) {
            return self.hang_up(origin.connection, Closed::Disconnected);
        }
        let client = self
            .connections
            .get(&origin.connection)
            .map(|record| record.client.clone());
        if client.is_some_and(|client| self.breaks.remove(&client)) {
            self.forget(origin.connection);
            return self.client_closes(origin.connection, Closed::Disconnected);
        }
        self.answer(origin.connection, origin.number, answer);
        self.serve_reads(origin.connection);
    }

    /// Fires one-time watches: the event is sent before any answer that shows the change.
    fn fire(&mut self, server: usize, change: &Change) {
        let is_deleted = matches!(change, Change::Delete { .. });
        let event = if is_deleted {
            NodeEvent::Deleted
        } else {
            NodeEvent::Changed
        };
        let is_other = !matches!(change, Change::SetData { .. });
        let watches = &mut self.servers[server].watches;
        let fired: Vec<_> = watches
            .extract_if(.., |watch| {
                let is_itself = watch.path == change.path() && (is_deleted || !watch.is_for_children);
                let is_child = watch.is_for_children && is_other && watch.path == tree::parent(change.path());
                is_itself || is_child
            })
            .collect();
        for fired in fired {
            let (connection, watch) = (fired.connection, fired.number);
            let event = if fired.path == change.path() {
                event
            } else {
                NodeEvent::Changed
            };
            self.send(LinkId::Down(connection), move |state| {
                state.client_heard(connection);
                if let Some(record) = state.connections.get_mut(&connection)
                    && let Some(watcher) = record.watches.remove(&watch)
                {
                    let _ = watcher.send(event);
                }
            });
        }
    }
}
