//! `kubectl lockkeeper` as a library: its command line, and its answers.

mod explain;
mod holders;
mod machines;
mod names;
mod plugin;
mod survivors;
mod table;
mod unmarked;
mod workload;

pub use plugin::Plugin;
