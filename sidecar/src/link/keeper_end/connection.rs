//! The keeper's end of a connection to one guard, for tokio.

use std::io;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::SendFlags;
use tokio::net::UnixStream;

use super::outbox::Outbox;
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
    outbox: Outbox,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self {
            stream,
            buffer: [0; FRAME_LEN],
            filled: 0,
            misunderstood: None,
            outbox: Outbox::default(),
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

    /// Sends a frame at once, or as soon as the guard has read what it was sent before: while [`Connection::recv`] is
    /// waited for. If the guard is gone, that reports it.
    pub(crate) fn send(&mut self, frame: ToGuard) {
        self.outbox.push(frame);
        while let Some(bytes) = self.outbox.bytes() {
            match send_at_once(&self.stream, bytes) {
                Ok(taken) => self.outbox.took(taken),
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }

    /// Sends a last frame, if there is room for it, and closes the connection.
    pub(super) fn send_last(self, frame: &ToGuard) {
        let _ = send_at_once(&self.stream, &frame.encode());
    }

    /// The next frame; `None` when the connection is over, or a frame is invalid. Cancel-safe. Meanwhile frames are sent
    /// that the guard had no room for.
    pub(crate) async fn recv(&mut self) -> Option<FromGuard> {
        let frame = std::future::poll_fn(|context| {
            self.poll_send(context);
            self.poll_recv(context)
        })
        .await;
        if let Some(error) = self.misunderstood() {
            tracing::warn!(%error, "Closing the connection of the guard");
        }
        frame
    }

    /// Why the last frame was not understood.
    pub(super) fn misunderstood(&self) -> Option<FrameError> {
        self.misunderstood
    }

    /// Sends what the socket has room for.
    fn poll_send(&mut self, context: &mut Context<'_>) {
        while let Some(bytes) = self.outbox.bytes() {
            let taken = match self.stream.poll_write_ready(context) {
                Poll::Pending => return,
                Poll::Ready(ready) => ready.and_then(|()| self.stream.try_write(bytes)),
            };
            match taken {
                Ok(taken) => self.outbox.took(taken),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The end of the connection is read, too.
                Err(_) => return self.outbox.clear(),
            }
        }
    }

    /// As [`Connection::recv`], without a log message, and nothing is sent.
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

/// Not `try_write`: right after a connection was accepted tokio has not heard yet that it can be written to.
fn send_at_once(stream: &UnixStream, bytes: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(stream, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::time::Duration;

    use lockkeeper_lock::{BootInstant, FencingToken};

    use super::*;
    use crate::link::protocol::Grant;

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
            link.send(revoke);
            let mut frame = [0; FRAME_LEN];
            guards.read_exact(&mut frame).expect("read");
            assert_eq!(ToGuard::decode(&frame), Ok(revoke));

            guards.write_all(&[9; FRAME_LEN]).expect("written");
            assert_eq!(link.recv().await, None);
        });
    }

    /// A socket takes 278 frames that nobody reads.
    #[test]
    fn a_keeper_waits_for_no_guard_and_one_that_reads_again_gets_the_newest_grant() {
        runtime().block_on(async {
            let (ours, mut guards) = std::os::unix::net::UnixStream::pair().expect("a pair");
            let mut link = Connection::from_std(ours).expect("a link");
            let grant = |generation| {
                ToGuard::Grant(Grant {
                    token: FencingToken(5),
                    generation,
                    start: false,
                    pause: false,
                    term_at: BootInstant::from_nanos(1),
                    kill_at: BootInstant::from_nanos(2),
                })
            };
            const LAST: u32 = 10_000;
            (1..=LAST).for_each(|generation| link.send(grant(generation)));

            guards
                .set_read_timeout(Some(Duration::from_secs(30)))
                .expect("a timeout");
            let reader = std::thread::spawn(move || {
                let mut frame = [0; FRAME_LEN];
                let mut count = 0;
                while ToGuard::decode(&frame) != Ok(grant(LAST)) {
                    guards.read_exact(&mut frame).expect("read");
                    count += 1;
                }
                count
            });
            assert_eq!(link.recv().await, None, "the reader hangs up at the end");
            let count = reader.join().expect("read");
            assert!(count < LAST / 2, "{count} frames were kept for it");
        });
    }
}
