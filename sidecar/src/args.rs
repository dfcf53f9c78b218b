//! The command line: what users may say, and what is made of it.

mod checked;
mod command;
mod lock;
mod pod;
mod usage;

pub use self::checked::{RunSettings, Settings, SidecarSettings};
pub use self::command::{
    Command, GuardArgs, InstallArgs, KeeperArgs, ProbeArgs, ReleaseArgs, RunArgs, SidecarArgs, StatusArgs,
    WaitArgs,
};
pub use self::lock::{LockArgs, OnExit, OnLoss, OnSuspect, ReadWrite, Restart};
pub use self::usage::{Parsed, command_line, parse};
