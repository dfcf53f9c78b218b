//! The runs under the lock: recorded, checked and drawn.
//!
//! A guarded program, `lockkeeper-recorder`, records when it ran ([`record`]). The [`checker`] proves from
//! those files that no two holders ran at one moment, and [`timeline`] draws them.
//!
//! The judge is independent: of the product's code, this crate uses only the clock.

#![warn(unreachable_pub)]

pub mod chain;
pub mod checker;
pub mod histogram;
pub mod record;
mod sys;
pub mod timeline;
