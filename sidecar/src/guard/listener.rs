//! The socket at which guards arrive (`wrap`): one guard at a time, the first stays.
//!
//! A guard that is connected is never displaced. One whose connection is down keeps its place while its process
//! lives, for it comes back; that it has gone is known by the end of its process ([`Peer`]) and by nothing else.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::link::GuardLink;
use super::protocol::{FromGuard, Hello, Refusal, ToGuard};
use crate::exit::Failure;
use crate::peer::{Peer, PeerProcess, Users};
use crate::socket::SocketFile;
use crate::time_namespace;

/// How long a connection may take to say [`FromGuard::Hello`]. A guard says it in the same moment.
const PATIENCE_FOR_HELLO: Duration = Duration::from_secs(1);

/// How many connections may be about to say it. When one more comes the oldest is closed: a guard has said it
/// before the keeper looks.
const PENDING: usize = 8;

/// Where guards arrive.
#[derive(Debug)]
pub struct GuardListener {
    listener: UnixListener,
    /// Removed with this.
    _file: SocketFile,
    users: Users,
    /// Our time namespace.
    clock: u32,
    /// Connections that have not said who they are, the oldest first.
    pending: VecDeque<Pending>,
    link: Option<GuardLink>,
    /// The guard that was let in last.
    known: Option<Known>,
    events: VecDeque<GuardEvent>,
}

/// What [`GuardListener::recv`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// The guard says. [`FromGuard::Hello`] is the first that a guard says that has come, or come back.
    Frame(FromGuard),
    /// The guard's connection is over. That does not mean that the application is gone.
    Disconnected {
        /// [`GuardEvent::Ended`] will tell the end of its process.
        is_watched: bool,
    },
    /// The process of the guard has ended.
    Ended {
        /// So has everything that it started: it was the first process of its PID namespace.
        is_proof: bool,
    },
    /// Another guard comes in place of the one before it, and it is not known what that has left behind. Its
    /// `Hello` follows.
    Succeeded,
}

#[derive(Debug)]
struct Pending {
    link: GuardLink,
    process: Option<PeerProcess>,
    until: Instant,
}

#[derive(Debug)]
struct Known {
    instance: u64,
    is_first: bool,
    /// `None` where the kernel does not tell, and once its end was told.
    process: Option<PeerProcess>,
    /// Its end was told.
    has_ended: bool,
}

/// What a newcomer is to the guard that was let in last.
enum Newcomer {
    Same,
    Next,
    Refused,
}

impl GuardListener {
    /// Listens at `path` for guards of these users. A socket that a dead process left there is replaced. To be called
    /// in a tokio runtime.
    ///
    /// # Errors
    /// When another process serves the path, when there is something else, or when it cannot be bound.
    pub fn bind(path: &Path, users: Users) -> Result<Self, Failure> {
        let (listener, file) = SocketFile::bind(path, "--guard-socket", users.mode(), None)?;
        if !Peer::is_told() {
            tracing::info!(
                "The kernel does not tell which process connects (SO_PEERPIDFD, Linux 6.5): the end of a guard \
                 that says nothing is not seen, and the lock is left to expire then"
            );
        }
        Ok(Self {
            listener,
            _file: file,
            users,
            clock: time_namespace::own(),
            pending: VecDeque::new(),
            link: None,
            known: None,
            events: VecDeque::new(),
        })
    }

    /// Sends a frame to the guard that is connected.
    ///
    /// # Errors
    /// `NotConnected` when there is none, else what the socket says.
    pub async fn send(&mut self, frame: &ToGuard) -> io::Result<()> {
        match &mut self.link {
            Some(link) => link.send(frame).await,
            None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// What happens next. To cancel it loses nothing.
    ///
    /// # Errors
    /// When no connection can be accepted any more, for want of file descriptors, say.
    pub async fn recv(&mut self) -> io::Result<GuardEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let is_connected = self.link.is_some();
            let oldest = self.pending.front().map(|pending| pending.until);
            tokio::select! {
                biased;
                frame = recv(&mut self.link) => match frame {
                    Some(frame) => return Ok(GuardEvent::Frame(frame)),
                    None => self.disconnected(),
                },
                // What it said last is read before.
                () = ended(&self.known), if !is_connected => self.note_its_end(),
                (at, frame) = hello(&mut self.pending) => self.heard(at, frame),
                () = timeout(oldest) => drop(self.pending.pop_front()),
                accepted = self.listener.accept() => self.accepted(accepted?.0)?,
            }
        }
    }

    /// Closes a connection whose end was not read yet.
    fn hang_up(&mut self) {
        if self.link.is_some() {
            self.disconnected();
        }
    }

    fn disconnected(&mut self) {
        self.link = None;
        let is_watched = self.known.as_ref().is_some_and(|known| known.process.is_some());
        self.events.push_back(GuardEvent::Disconnected { is_watched });
    }

    fn note_its_end(&mut self) {
        if let Some(known) = &mut self.known
            && known.process.take().is_some()
        {
            known.has_ended = true;
            let is_proof = known.is_first;
            self.events.push_back(GuardEvent::Ended { is_proof });
        }
    }

    fn accepted(&mut self, stream: UnixStream) -> io::Result<()> {
        let user = stream.peer_cred()?.uid();
        self.accepted_from(user, stream)
    }

    fn accepted_from(&mut self, user: u32, stream: UnixStream) -> io::Result<()> {
        let process = match Peer::of(&stream)? {
            Peer::Process(process) => Some(process),
            Peer::Unknown => None,
            Peer::Ended => return Ok(()),
        };
        let link = GuardLink::new(stream);
        if !self.users.allow(user) {
            tracing::warn!(
                user,
                "A guard of a user that may not guard was refused (--guard-user)"
            );
            link.send_last(&ToGuard::Refuse { why: Refusal::User });
            return Ok(());
        }
        if self.pending.len() == PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            link,
            process,
            until: Instant::now() + PATIENCE_FOR_HELLO,
        });
        Ok(())
    }

    /// What a connection has said that was not let in yet, or `None` when it said nothing that a guard says.
    fn heard(&mut self, at: usize, frame: Option<FromGuard>) {
        let newcomer = self.pending.remove(at);
        let (Some(newcomer), Some(FromGuard::Hello(hello))) = (newcomer, frame) else {
            tracing::debug!("A connection that is none of a guard was closed");
            return;
        };
        if hello.clock != self.clock {
            tracing::error!(
                pid = hello.pid,
                "A guard in another time namespace (time_namespaces(7)) was refused: its clock is not ours"
            );
            return newcomer.link.send_last(&ToGuard::Refuse { why: Refusal::Clock });
        }
        match self.look_at(&hello, newcomer.process.as_ref()) {
            Newcomer::Same => {
                self.hang_up();
                self.link = Some(newcomer.link);
            }
            Newcomer::Next => {
                self.hang_up();
                self.note_its_end();
                let is_proven = |known: &Known| known.has_ended && known.is_first;
                if self.known.as_ref().is_some_and(|known| !is_proven(known)) {
                    self.events.push_back(GuardEvent::Succeeded);
                }
                self.link = Some(newcomer.link);
                self.known = Some(Known {
                    instance: hello.instance,
                    is_first: hello.is_first,
                    process: newcomer.process,
                    has_ended: false,
                });
            }
            Newcomer::Refused => {
                tracing::warn!(
                    pid = hello.pid,
                    "Another guard was refused: there is one already, and its process has not ended"
                );
                let why = Refusal::Another;
                return newcomer.link.send_last(&ToGuard::Refuse { why });
            }
        }
        self.events.push_back(GuardEvent::Frame(FromGuard::Hello(hello)));
    }

    fn look_at(&self, hello: &Hello, process: Option<&PeerProcess>) -> Newcomer {
        let Some(known) = &self.known else {
            return Newcomer::Next;
        };
        let lives = known.process.as_ref().map(|process| !process.has_ended());
        let has_ended = known.has_ended || lives == Some(false);
        // Who says the number of a guard is that guard, unless the kernel knows better.
        let is_another = match (&known.process, process) {
            (Some(known), Some(process)) => process.is_another_than(known),
            _ => false,
        };
        if !has_ended && known.instance == hello.instance && !is_another {
            return Newcomer::Same;
        }
        let is_taken = match lives {
            Some(lives) => lives,
            // Nothing tells the end of its process, or that was told before.
            None => self.link.is_some(),
        };
        // Also one that has something: the guard of a keeper before us, which a second one has forestalled.
        if is_taken {
            Newcomer::Refused
        } else {
            Newcomer::Next
        }
    }
}

async fn recv(link: &mut Option<GuardLink>) -> Option<FromGuard> {
    match link {
        Some(link) => link.recv().await,
        None => std::future::pending().await,
    }
}

async fn ended(known: &Option<Known>) {
    match known.as_ref().and_then(|known| known.process.as_ref()) {
        Some(process) => process.ended().await,
        None => std::future::pending().await,
    }
}

/// The first word of any, by its place.
async fn hello(pending: &mut VecDeque<Pending>) -> (usize, Option<FromGuard>) {
    std::future::poll_fn(|context| {
        for (at, newcomer) in pending.iter_mut().enumerate() {
            if let Poll::Ready(frame) = newcomer.link.poll_recv(context) {
                return Poll::Ready((at, frame));
            }
        }
        Poll::Pending
    })
    .await
}

async fn timeout(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
