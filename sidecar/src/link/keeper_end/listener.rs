//! The socket at which guards arrive (`wrap`): one guard at a time, the first stays.
//!
//! A guard that is connected is never displaced. A guard whose connection is down keeps its place while its process
//! lives, since it connects again. Only the end of its process ([`Peer`]) means that it is gone.

use lockkeeper_daemon::accept::ACCEPT_PAUSE;
use lockkeeper_daemon::exit::Failure;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::task::Poll;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::time::Instant;

use super::connection::{Connection, Heard};
use super::refused_for_its_clock;
use crate::link::protocol::{FrameError, FromGuard, Hello, Refusal, ToGuard};
use crate::peer::{Peer, PeerProcess, Users};
use crate::socket_file::SocketFile;

/// How long a connection may take to say [`FromGuard::Hello`]. A guard sends it at once.
const PATIENCE_FOR_HELLO: Duration = Duration::from_secs(1);

/// How many connections may be open before their `Hello`. When one more comes, the oldest is closed: a guard has sent
/// its `Hello` before the keeper reads.
const PENDING: usize = 8;

#[derive(Debug)]
pub struct GuardListener {
    listener: UnixListener,
    /// Removed with this.
    _file: SocketFile,
    users: Users,
    /// Connections before their `Hello`, the oldest first.
    pending: VecDeque<Pending>,
    connection: Option<Connection>,
    /// The guard that was accepted last.
    known: Option<Known>,
    events: VecDeque<Heard>,
    /// The next attempt to accept, after one that has failed.
    accept_at: Option<Instant>,
    /// The last error of a newcomer in the log. A guard of another version connects again ten times a second.
    misunderstood: Option<FrameError>,
}

#[derive(Debug)]
struct Pending {
    connection: Connection,
    process: Option<PeerProcess>,
    until: Instant,
}

#[derive(Debug)]
struct Known {
    instance: u64,
    is_first: bool,
    /// `None` if the kernel does not report it, and after its end was reported.
    process: Option<PeerProcess>,
    /// Its end was reported.
    has_ended: bool,
}

/// A newcomer in relation to the guard that was accepted last.
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
                "The kernel does not tell which process connects (SO_PEERPIDFD, Linux 6.5): if a guard ends \
                 without a report, the keeper does not see that, and leaves the lock to expire"
            );
        }
        Ok(Self {
            listener,
            _file: file,
            users,
            pending: VecDeque::new(),
            connection: None,
            known: None,
            events: VecDeque::new(),
            accept_at: None,
            misunderstood: None,
        })
    }

    /// Sends a frame to the guard that is connected, if there is one, as [`Connection::send`] does.
    pub(crate) fn send(&mut self, frame: ToGuard) {
        if let Some(connection) = &mut self.connection {
            connection.send(frame);
        }
    }

    /// The next event. Cancel-safe. While no connection can be accepted, for example because no file descriptor is free,
    /// it is tried again and again: a guard that is connected is not concerned.
    pub async fn recv(&mut self) -> Heard {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let is_connected = self.connection.is_some();
            let oldest = self.pending.front().map(|pending| pending.until);
            tokio::select! {
                biased;
                frame = recv(&mut self.connection) => match frame {
                    Some(frame) => return Heard::Frame(frame),
                    None => self.disconnected(),
                },
                // Its last frames are read before.
                () = ended(&self.known), if !is_connected => self.note_its_end(),
                (at, frame) = hello(&mut self.pending) => self.heard(at, frame),
                () = timeout(oldest) => drop(self.pending.pop_front()),
                accepted = accept(&self.listener, self.accept_at) => {
                    let accepted = accepted.and_then(|stream| self.accepted(stream));
                    self.note_failure(accepted.err());
                }
            }
        }
    }

    /// Closes a connection whose end was not read yet.
    fn hang_up(&mut self) {
        if self.connection.is_some() {
            self.disconnected();
        }
    }

    fn disconnected(&mut self) {
        self.connection = None;
        let is_watched = self.known.as_ref().is_some_and(|known| known.process.is_some());
        self.events.push_back(Heard::Lost { is_watched });
    }

    fn note_its_end(&mut self) {
        if let Some(known) = &mut self.known
            && known.process.take().is_some()
        {
            known.has_ended = true;
            let is_proof = known.is_first;
            self.events.push_back(Heard::Ended { is_proof });
        }
    }

    fn note_failure(&mut self, error: Option<io::Error>) {
        if let (Some(error), None) = (&error, self.accept_at) {
            tracing::warn!(%error, "Failed to accept a guard; trying again every {ACCEPT_PAUSE:?}");
        }
        self.accept_at = error.map(|_| Instant::now() + ACCEPT_PAUSE);
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
        let connection = Connection::new(stream);
        if !self.users.allow(user) {
            tracing::warn!(
                user,
                "Refused a guard, because its user may not guard (--guard-user)"
            );
            connection.send_last(&ToGuard::Refuse { why: Refusal::User });
            return Ok(());
        }
        if self.pending.len() == PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            connection,
            process,
            until: Instant::now() + PATIENCE_FOR_HELLO,
        });
        Ok(())
    }

    /// Handles the first frame of a connection that was not accepted yet; `None` if it is not a frame of a guard.
    fn heard(&mut self, at: usize, frame: Option<FromGuard>) {
        let Some(newcomer) = self.pending.remove(at) else {
            return;
        };
        let Some(FromGuard::Hello(hello)) = frame else {
            tracing::debug!("A connection that is not a guard's was closed");
            let error = newcomer.connection.misunderstood();
            if let Some(error) = error.filter(|_| error != self.misunderstood) {
                tracing::warn!(%error, "Closing a connection at the guards' socket");
                self.misunderstood = Some(error);
            }
            if let Some(FrameError::Version(_)) = newcomer.connection.misunderstood() {
                let why = Refusal::Version;
                newcomer.connection.send_last(&ToGuard::Refuse { why });
            }
            return;
        };
        if let Some(refusal) = refused_for_its_clock(&hello) {
            return newcomer.connection.send_last(&refusal);
        }
        match self.look_at(&hello, newcomer.process.as_ref()) {
            Newcomer::Same => {
                self.hang_up();
                self.connection = Some(newcomer.connection);
            }
            Newcomer::Next => {
                self.hang_up();
                self.note_its_end();
                let is_proven = |known: &Known| known.has_ended && known.is_first;
                if self.known.as_ref().is_some_and(|known| !is_proven(known)) {
                    self.events.push_back(Heard::Succeeded);
                }
                self.connection = Some(newcomer.connection);
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
                return newcomer.connection.send_last(&ToGuard::Refuse { why });
            }
        }
        self.events.push_back(Heard::Frame(FromGuard::Hello(hello)));
    }

    fn look_at(&self, hello: &Hello, process: Option<&PeerProcess>) -> Newcomer {
        let Some(known) = &self.known else {
            return Newcomer::Next;
        };
        let lives = known.process.as_ref().map(|process| !process.has_ended());
        let has_ended = known.has_ended || lives == Some(false);
        // A newcomer with the instance of a guard is that guard, unless the kernel reports another process.
        let is_another = match (&known.process, process) {
            (Some(known), Some(process)) => process.is_another_than(known),
            _ => false,
        };
        if !has_ended && known.instance == hello.instance && !is_another {
            return Newcomer::Same;
        }
        let is_taken = match lives {
            Some(lives) => lives,
            // The end of its process is not observable, or was reported before.
            None => self.connection.is_some(),
        };
        // This holds also for a newcomer that has something running: the guard of a keeper before us, where a second
        // guard has connected first.
        if is_taken {
            Newcomer::Refused
        } else {
            Newcomer::Next
        }
    }
}

async fn accept(listener: &UnixListener, at: Option<Instant>) -> io::Result<UnixStream> {
    if let Some(at) = at {
        tokio::time::sleep_until(at).await;
    }
    listener.accept().await.map(|(stream, _)| stream)
}

async fn recv(connection: &mut Option<Connection>) -> Option<FromGuard> {
    match connection {
        Some(connection) => connection.recv().await,
        None => std::future::pending().await,
    }
}

async fn ended(known: &Option<Known>) {
    match known.as_ref().and_then(|known| known.process.as_ref()) {
        Some(process) => process.ended().await,
        None => std::future::pending().await,
    }
}

/// The first frame of any pending connection, with its place.
async fn hello(pending: &mut VecDeque<Pending>) -> (usize, Option<FromGuard>) {
    std::future::poll_fn(|context| {
        for (at, newcomer) in pending.iter_mut().enumerate() {
            if let Poll::Ready(frame) = newcomer.connection.poll_recv(context) {
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
