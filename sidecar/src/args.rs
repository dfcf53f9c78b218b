//! The command line: what users may say, and what is made of it.

mod checked;
mod command;
mod ensemble;
mod examples;
mod lock;
mod output;
mod pattern;
mod pod;
mod remote;
mod ui;
mod usage;

pub use self::checked::{RunSettings, Settings, SidecarSettings};
pub use self::command::{
    Command, GuardArgs, InstallArgs, KeeperArgs, ProbeArgs, ReleaseArgs, RunArgs, SidecarArgs, StatusArgs,
    WaitArgs, WaitFor,
};
pub use self::ensemble::EnsembleArgs;
pub use self::lock::{LockArgs, OnExit, OnLoss, OnSuspect, ReadWrite, Restart};
pub use self::output::{OutputArgs, OutputFormat};
pub(crate) use self::pattern::Step;
pub use self::pattern::{Pattern, PatternArgs};
pub use self::remote::{HandoffArgs, HistoryArgs, InspectArgs, ListArgs, WatchArgs};
pub use self::ui::UiArgs;
pub use self::usage::{Parsed, command_line, parse};
