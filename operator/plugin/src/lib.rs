//! `kubectl lockkeeper` as a library: its command line, and its answers.

#![warn(unreachable_pub)]

mod check;
mod complete;
mod doubt;
mod explain;
mod history;
mod holders;
mod list;
mod machines;
mod names;
mod output;
mod plugin;
mod problem;
mod survivors;
mod table;
mod ui;
mod unmarked;
mod workload;

pub use complete::{complete, is_wanted as completes};
pub use plugin::Plugin;
