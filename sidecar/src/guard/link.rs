//! The keeper's end of the socket to the guard, for tokio.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

use super::protocol::{FRAME_LEN, Frame, FromGuard, ToGuard};

/// A connection to one guard.
#[derive(Debug)]
pub struct GuardLink {
    stream: UnixStream,
    buffer: Frame,
    filled: usize,
}

/// The socket to which guards connect (`wrap`): one guard at a time, the newest wins.
///
/// Anybody who may open the path can pretend to be the guard, so it belongs into a directory that
/// only the keeper and the guarded container see.
#[derive(Debug)]
pub struct GuardListener {
    listener: UnixListener,
    path: PathBuf,
    link: Option<GuardLink>,
}

/// What [`GuardListener::recv`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardEvent {
    /// A guard has connected; its `Hello` follows. A connection before it is closed.
    Connected,
    /// The guard says.
    Frame(FromGuard),
    /// The guard's connection is over. That does not mean that the application is gone.
    Disconnected,
}

impl GuardLink {
    /// Over a connected socket.
    pub fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: [0; FRAME_LEN],
            filled: 0,
        }
    }

    /// Over the keeper's half of the socket pair that it shares with the guard (`run`).
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking, or there is no tokio runtime with I/O.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::new(UnixStream::from_std(stream)?))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// When the guard is gone. To cancel it in the middle breaks the connection.
    pub async fn send(&mut self, frame: &ToGuard) -> io::Result<()> {
        self.stream.write_all(&frame.encode()).await
    }

    /// The next frame; `None` when the connection is over, or said something that is not
    /// understood. To cancel it loses nothing.
    pub async fn recv(&mut self) -> Option<FromGuard> {
        while self.filled < FRAME_LEN {
            self.stream.readable().await.ok()?;
            match self.stream.try_read(&mut self.buffer[self.filled..]) {
                Ok(0) => return None,
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
        self.filled = 0;
        FromGuard::decode(&self.buffer).ok()
    }
}

impl GuardListener {
    /// Listens at `path`; a socket that an earlier keeper left there is replaced. `mode` are the
    /// permissions: the guard often runs as another user than the keeper.
    ///
    /// # Errors
    /// When the path cannot be bound, or there is no tokio runtime with I/O.
    pub fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            link: None,
        })
    }

    /// Where guards connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether a guard is connected.
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
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
        let frame = async {
            match &mut self.link {
                Some(link) => link.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.listener.accept() => {
                let (stream, _) = accepted?;
                self.link = Some(GuardLink::new(stream));
                Ok(GuardEvent::Connected)
            }
            frame = frame => Ok(match frame {
                Some(frame) => GuardEvent::Frame(frame),
                None => {
                    self.link = None;
                    GuardEvent::Disconnected
                }
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use lockkeeper_lock::FencingToken;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .expect("a runtime")
    }

    #[test]
    fn frames_arrive_whole_and_in_order_however_they_are_cut() {
        runtime().block_on(async {
            let (ours, mut guards) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let mut link = GuardLink::from_std(ours).expect("a link");
            let gone = FromGuard::Gone {
                token: FencingToken(5),
                code: None,
            };
            let signal = FromGuard::Signal { signo: 15 };
            let bytes = [gone.encode(), signal.encode()].concat();
            for part in bytes.chunks(13) {
                guards.write_all(part).expect("written");
            }
            assert_eq!(link.recv().await, Some(gone));
            assert_eq!(link.recv().await, Some(signal));

            let revoke = ToGuard::Revoke {
                token: FencingToken(5),
            };
            link.send(&revoke).await.expect("sent");
            let mut frame = [0; FRAME_LEN];
            guards.read_exact(&mut frame).expect("read");
            assert_eq!(ToGuard::decode(&frame), Ok(revoke));

            guards.write_all(&[9; FRAME_LEN]).expect("written");
            assert_eq!(link.recv().await, None);
        });
    }

    #[test]
    fn the_newest_guard_replaces_the_one_before_it() {
        runtime().block_on(async {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("guard.sock");
            std::fs::write(&path, "left over").expect("written");
            let mut listener = GuardListener::bind(&path, 0o660).expect("bound");
            let revoke = ToGuard::Revoke {
                token: FencingToken(5),
            };
            assert!(listener.send(&revoke).await.is_err());

            let connect = || std::os::unix::net::UnixStream::connect(&path).expect("connected");
            let mut first = connect();
            assert_eq!(listener.recv().await.expect("event"), GuardEvent::Connected);
            let mut second = connect();
            assert_eq!(listener.recv().await.expect("event"), GuardEvent::Connected);
            assert_eq!(first.read(&mut [0]).expect("closed"), 0);

            listener.send(&revoke).await.expect("sent");
            second.read_exact(&mut [0; FRAME_LEN]).expect("read");
            drop(second);
            assert_eq!(listener.recv().await.expect("event"), GuardEvent::Disconnected);
            assert!(!listener.is_connected());
        });
    }
}
