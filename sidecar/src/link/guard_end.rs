//! The guard's end of the socket to the keeper: never blocks, allocates nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use rustix::io::Errno;
use rustix::net::SendFlags;

use super::impostor;
use super::protocol::{FRAME_LEN, Frame, FrameError, FromGuard, ToGuard};
use super::socket_place::SocketPlace;

/// Limits of the time between two attempts to connect: doubled each time, short again after success.
const RETRY_SHORTEST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(1);

/// The connection, if there is one.
#[derive(Debug)]
pub(crate) struct GuardEnd {
    socket: Option<OwnedFd>,
    /// Where to connect; `None` for an inherited socket, which cannot reconnect.
    place: Option<SocketPlace>,
    retry_at: BootInstant,
    retry_after: Duration,
    buffer: Frame,
    filled: usize,
}

/// Why there is no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKeeper {
    /// What `socket(2)` or `connect(2)` says.
    Unreachable(Errno),
    /// What listens there may be a process of the guard's own container, where no keeper is.
    Impostor,
}

/// The result of a read.
#[derive(Debug)]
pub(crate) enum Received {
    /// A whole frame.
    Frame(ToGuard),
    Nothing,
    /// The connection is over, or has to be.
    Lost(Option<FrameError>),
}

impl GuardEnd {
    /// Over a connected socket.
    pub(crate) fn inherited(socket: OwnedFd) -> io::Result<Self> {
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&socket, true)?;
        Ok(Self {
            socket: Some(socket),
            ..Self::new(None)
        })
    }

    /// Over a socket at a path, which the keeper may create later.
    ///
    /// # Errors
    /// When no socket can have this path.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let place = SocketPlace::new(path).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("the socket path {} cannot be used: {error}", path.display()),
            )
        })?;
        Ok(Self::new(Some(place)))
    }

    fn new(place: Option<SocketPlace>) -> Self {
        Self {
            socket: None,
            place,
            retry_at: BootInstant::from_nanos(0),
            retry_after: RETRY_SHORTEST,
            buffer: [0; FRAME_LEN],
            filled: 0,
        }
    }

    pub(crate) fn reconnects(&self) -> bool {
        self.place.is_some()
    }

    /// The socket while there is one.
    pub(crate) fn socket(&self) -> Option<BorrowedFd<'_>> {
        self.socket.as_ref().map(AsFd::as_fd)
    }

    /// When [`GuardEnd::connect`] is to be called.
    pub(crate) fn retry_at(&self) -> Option<BootInstant> {
        (self.socket.is_none() && self.place.is_some()).then_some(self.retry_at)
    }

    /// Connects if it is time to. True when there is a new connection.
    ///
    /// # Errors
    /// Why there is none; there will be another attempt.
    pub(crate) fn connect(&mut self, now: BootInstant) -> Result<bool, NoKeeper> {
        let Some(place) = &mut self.place else {
            return Ok(false);
        };
        if self.socket.is_some() || now < self.retry_at {
            return Ok(false);
        }
        match connect(place) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.retry_after = RETRY_SHORTEST;
                self.filled = 0;
                Ok(true)
            }
            Err(error) => {
                self.retry_at = now + self.retry_after;
                self.retry_after = (self.retry_after * 2).min(RETRY_LONGEST);
                Err(error)
            }
        }
    }

    pub(crate) fn hang_up(&mut self, now: BootInstant) {
        self.socket = None;
        self.retry_at = now + self.retry_after;
    }

    /// The next frame, if one is there.
    pub(crate) fn receive(&mut self) -> Received {
        let Some(socket) = &self.socket else {
            return Received::Nothing;
        };
        while self.filled < FRAME_LEN {
            match rustix::io::read(socket, &mut self.buffer[self.filled..]) {
                Ok(0) => return Received::Lost(None),
                Ok(read) => self.filled += read,
                Err(Errno::AGAIN) => return Received::Nothing,
                Err(Errno::INTR) => {}
                Err(_) => return Received::Lost(None),
            }
        }
        self.filled = 0;
        match ToGuard::decode(&self.buffer) {
            Ok(frame) => Received::Frame(frame),
            Err(error) => Received::Lost(Some(error)),
        }
    }

    /// Sends a frame. False when the connection has to be given up: a keeper that has left a whole socket buffer
    /// unread would otherwise read outdated frames later. Only `EndWanted` may be lost.
    pub(crate) fn send(&mut self, frame: &FromGuard) -> bool {
        let Some(socket) = &self.socket else { return true };
        match rustix::net::send(socket, &frame.encode(), SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => sent == FRAME_LEN,
            Err(Errno::AGAIN) => matches!(frame, FromGuard::EndWanted { .. }),
            Err(_) => false,
        }
    }
}

fn connect(place: &mut SocketPlace) -> Result<OwnedFd, NoKeeper> {
    let socket = place.connect().map_err(NoKeeper::Unreachable)?;
    if impostor::may_be_a_neighbour(socket.as_fd()) {
        return Err(NoKeeper::Impostor);
    }
    Ok(socket)
}
