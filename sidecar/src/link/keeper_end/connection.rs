//! The keeper's end of a connection to one guard, for tokio.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::net::SendFlags;
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

use crate::link::protocol::{FRAME_LEN, Frame, FrameError, FromGuard, ToGuard};

/// An event of the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A frame of the guard. [`FromGuard::Hello`] is the first frame of a guard that has connected, for the first
    /// time or again.
    Frame(FromGuard),
    /// The guard's connection is over. That does not mean that the application is gone.
    Lost {
        /// [`Heard::Ended`] will follow at the end of its process.
        is_watched: bool,
    },
    /// The process of the guard has ended.
    Ended {
        /// It was the first process of its PID namespace, so everything that it started has ended too.
        is_proof: bool,
    },
    /// Another guard takes the place of the one before it, and it is not known what that one has left behind. The new
    /// guard's `Hello` follows.
    Succeeded,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    buffer: Frame,
    filled: usize,
    misunderstood: Option<FrameError>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: [0; FRAME_LEN],
            filled: 0,
            misunderstood: None,
        }
    }

    /// Over the keeper's half of the socket pair that it shares with the guard.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking, or there is no tokio runtime with I/O.
    pub(crate) fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::new(UnixStream::from_std(stream)?))
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// When the guard is gone. It is not cancel-safe: a frame that was sent in part breaks the connection.
    pub(crate) async fn send(&mut self, frame: &ToGuard) -> io::Result<()> {
        self.stream.write_all(&frame.encode()).await
    }

    /// Sends a last frame, if there is room for it, and closes the connection.
    pub(super) fn send_last(self, frame: &ToGuard) {
        // Not `try_write`: right after a connection was accepted tokio has not heard yet that it can be written to.
        let at_once = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let _ = rustix::net::send(&self.stream, &frame.encode(), at_once);
    }

    /// The next frame; `None` when the connection is over, or a frame is invalid. Cancel-safe.
    pub(crate) async fn recv(&mut self) -> Option<FromGuard> {
        let frame = std::future::poll_fn(|context| self.poll_recv(context)).await;
        if let Some(error) = self.misunderstood() {
            tracing::warn!(%error, "Closing the connection of the guard");
        }
        frame
    }

    /// Why the last frame was not understood.
    pub(super) fn misunderstood(&self) -> Option<FrameError> {
        self.misunderstood
    }

    /// As [`Connection::recv`], without a log message.
    pub(super) fn poll_recv(&mut self, context: &mut Context<'_>) -> Poll<Option<FromGuard>> {
        while self.filled < FRAME_LEN {
            if ready!(self.stream.poll_read_ready(context)).is_err() {
                return Poll::Ready(None);
            }
            match self.stream.try_read(&mut self.buffer[self.filled..]) {
                Ok(0) => return Poll::Ready(None),
                Ok(read) => self.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return Poll::Ready(None),
            }
        }
        self.filled = 0;
        let frame = FromGuard::decode(&self.buffer);
        self.misunderstood = frame.as_ref().err().copied();
        Poll::Ready(frame.ok())
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
            let mut link = Connection::from_std(ours).expect("a link");
            let gone = FromGuard::Gone {
                token: FencingToken(5),
                code: None,
                had_sigterm: false,
            };
            let signal = FromGuard::EndWanted { signo: 15 };
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
}
