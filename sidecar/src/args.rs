//! The command line: what users may say, and what is made of it.

mod command;
mod lock;
mod pod;
mod settings;
mod usage;

pub use self::command::{
    Command, GuardArgs, InstallArgs, KeeperArgs, ProbeArgs, ReleaseArgs, RunArgs, SidecarArgs, StatusArgs,
    WaitArgs,
};
pub use self::lock::{LockArgs, OnExit, OnLoss, OnSuspect, ReadWrite, Restart};
pub use self::settings::{RunSettings, Settings, SidecarSettings};
pub use self::usage::{Parsed, parse};
