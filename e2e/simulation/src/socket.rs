//! The Unix stream socket between a guard and its keeper: bytes in order, and a close.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use lockkeeper_sidecar::link::protocol::{FRAME_LEN, Frame};
use tokio::sync::Notify;

/// One direction.
#[derive(Default)]
struct Way {
    bytes: VecDeque<u8>,
    is_closed: bool,
}

#[derive(Default)]
struct Wire {
    ways: [RefCell<Way>; 2],
    news: [Notify; 2],
}

/// One end. Dropping it, as the kernel does for a process that ends, closes the connection.
pub(crate) struct End {
    wire: Rc<Wire>,
    side: usize,
}

/// Breaks a connection while both ends live.
pub(crate) struct Breaker(Rc<Wire>);

/// The result of a read from the socket.
pub(crate) enum Received {
    Frame(Frame),
    Nothing,
    /// The other end has closed, and everything that it sent was read.
    Over,
}

/// Both ends of a new connection.
pub(crate) fn pair() -> (End, End) {
    let wire = Rc::new(Wire::default());
    let end = |side| End {
        wire: Rc::clone(&wire),
        side,
    };
    (end(0), end(1))
}

impl Wire {
    fn close(&self) {
        for (way, news) in self.ways.iter().zip(&self.news) {
            way.borrow_mut().is_closed = true;
            news.notify_one();
        }
    }
}

impl Breaker {
    pub(crate) fn hang_up(&self) {
        self.0.close();
    }
}

impl End {
    pub(crate) fn breaker(&self) -> Breaker {
        Breaker(Rc::clone(&self.wire))
    }

    /// Sends bytes; false if the other end is closed.
    pub(crate) fn send(&self, bytes: &[u8]) -> bool {
        let other = 1 - self.side;
        let mut way = self.wire.ways[other].borrow_mut();
        if way.is_closed {
            return false;
        }
        way.bytes.extend(bytes);
        drop(way);
        self.wire.news[other].notify_one();
        true
    }

    /// The next frame, if it is complete.
    pub(crate) fn receive(&self) -> Received {
        let mut way = self.wire.ways[self.side].borrow_mut();
        if way.bytes.len() >= FRAME_LEN {
            let mut frame = [0; FRAME_LEN];
            for (place, byte) in frame.iter_mut().zip(way.bytes.drain(..FRAME_LEN)) {
                *place = byte;
            }
            return Received::Frame(frame);
        }
        if way.is_closed {
            Received::Over
        } else {
            Received::Nothing
        }
    }

    /// Whether [`End::receive`] has something.
    pub(crate) fn is_readable(&self) -> bool {
        let way = self.wire.ways[self.side].borrow();
        way.is_closed || way.bytes.len() >= FRAME_LEN
    }

    /// Waits until it has. Cancel-safe.
    pub(crate) async fn readable(&self) {
        while !self.is_readable() {
            self.wire.news[self.side].notified().await;
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.wire.close();
    }
}
