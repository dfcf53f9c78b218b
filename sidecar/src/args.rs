//! The command line: what users may say, and what is made of it.

mod checked;
mod command;
mod ensemble;
mod examples;
mod lock;
mod output;
mod pattern;
mod pod;
mod usage;

pub use self::checked::{RunSettings, Settings, SidecarSettings};
pub use self::command::{
    Command, GuardArgs, HandoffArgs, InspectArgs, InstallArgs, KeeperArgs, ListArgs, ProbeArgs, ReleaseArgs,
    RunArgs, SidecarArgs, StatusArgs, WaitArgs, WaitFor, WatchArgs,
};
pub use self::ensemble::EnsembleArgs;
pub use self::lock::{LockArgs, OnExit, OnLoss, OnSuspect, ReadWrite, Restart};
pub use self::output::{OutputArgs, OutputFormat};
pub use self::pattern::Pattern;
pub(crate) use self::pattern::Step;
pub use self::usage::{Parsed, command_line, parse};
