//! The protocol between keeper and guard: fixed frames of 32 bytes over a Unix stream socket.
//!
//! | bytes | content (little-endian) |
//! |---|---|
//! | 0 | kind |
//! | 1 | flags |
//! | 2 | protocol version (only in `Hello`, else 0) |
//! | 3 | 0 |
//! | 4..8 | argument: a process id, an exit code, an errno, a signal, a number of processes or the generation of a grant |
//! | 8..16 | fencing token; 0 is none |
//! | 16..24, 24..32 | two instants, nanoseconds of `CLOCK_BOOTTIME`; in `Hello` the first is the guard's instance, in `Survivors` a process id |
//! | 24 | in `Hello`: what holds the application together |
//! | 25..29 | in `Hello`: the time namespace whose clock the guard reads; 0 where there is none |
//!
//! A [ticket](TicketHalf) has two frames: a session (timeout, number, password in bytes 16..32) and a contender (lease
//! duration, token, the unique part of its name in bytes 16..32).
//!
//! Both ends are on one machine and of one release, so there is nothing to negotiate. An end that does not understand
//! a frame closes the connection, and never acts on it.
//!
//! A new version of the binary has a new [`VERSION`] when a frame is added, changes its bytes, or means something else.
//! A keeper does not take a guard of another version. If that guard has something running, it stops that at its
//! deadline.

mod containment;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod examples;
mod frame;
mod from_guard;
#[cfg(test)]
mod tests;
mod ticket;
mod to_guard;

pub use self::containment::Containment;
pub use self::frame::{FRAME_LEN, Frame, FrameError, VERSION};
pub use self::from_guard::{FromGuard, Hello, Tree};
pub(crate) use self::ticket::{Kept, TicketHalf};
pub use self::to_guard::{Grant, Refusal, ToGuard};
