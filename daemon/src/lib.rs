//! Shared parts of Lockkeeper's long-running programs: keeper, guard and operator.
//!
//! Without features it has only exit codes, durations, credentials and parts of sentences, on every system.

#![warn(unreachable_pub)]

#[cfg(feature = "http")]
pub mod accept;
pub mod credentials;
pub mod duration;
pub mod exit;
mod file;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "log")]
mod lines;
#[cfg(feature = "log")]
pub mod log;
#[cfg(feature = "page")]
pub mod page;
#[cfg(feature = "http")]
pub mod places;
#[cfg(feature = "http")]
pub mod send_deadline;
pub mod sentence;
pub mod table;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "http")]
pub mod token;
pub mod version;
