//! The options of the commands that ask the ensemble itself. Doc comments of the fields are the help that users read.

use std::time::Duration;

use clap::Args;
use lockkeeper_daemon::duration;
use lockkeeper_lock::LockPath;

use super::ensemble::EnsembleArgs;
use super::examples;
use super::output::OutputArgs;
use super::pattern::PatternArgs;

/// Arguments of `lockkeeper list`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::LIST)]
pub struct ListArgs {
    #[command(flatten)]
    pub ensemble: EnsembleArgs,

    #[command(flatten)]
    pub locks: PatternArgs,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `lockkeeper inspect`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::INSPECT)]
pub struct InspectArgs {
    #[command(flatten)]
    pub ensemble: EnsembleArgs,

    /// Path of the lock's node
    #[arg(long, env = "LOCKKEEPER_LOCK", value_name = "PATH")]
    pub lock: LockPath,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `lockkeeper watch`: those of `inspect`.
pub type WatchArgs = InspectArgs;

/// Arguments of `lockkeeper history`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::HISTORY)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub ensemble: EnsembleArgs,

    /// Path of the lock's node
    #[arg(long, env = "LOCKKEEPER_LOCK", value_name = "PATH")]
    pub lock: LockPath,

    /// Path of the lock's control node. Default: the lock's with -control at the end
    #[arg(long, env = "LOCKKEEPER_CONTROL", value_name = "PATH")]
    pub control: Option<LockPath>,

    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `lockkeeper handoff`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::HANDOFF)]
pub struct HandoffArgs {
    #[command(flatten)]
    pub ensemble: EnsembleArgs,

    /// Path of the lock's node
    #[arg(long, env = "LOCKKEEPER_LOCK", value_name = "PATH")]
    pub lock: LockPath,

    /// Path of the lock's control node. Default: the lock's with -control at the end
    #[arg(long, env = "LOCKKEEPER_CONTROL", value_name = "PATH")]
    pub control: Option<LockPath>,

    /// Which of several holders: its contender, pod or host, as `lockkeeper inspect` shows it
    #[arg(long, env = "LOCKKEEPER_HOLDER", value_name = "NAME")]
    pub holder: Option<String>,

    /// Give up waiting after this time (exit code 81); the holder stays asked. Default: wait for ever
    #[arg(long, env = "LOCKKEEPER_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
}
