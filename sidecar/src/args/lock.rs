//! The lock, and what happens to the application with it: arguments of `run` and of `sidecar`.

use std::time::Duration;

use clap::{Args, ValueEnum};
use lockkeeper_daemon::duration;
use lockkeeper_lock::{LeaseDuration, LockPath};
use uuid::Uuid;

use super::ensemble::EnsembleArgs;

/// The lock, and what happens to the application with it: shared by `run` and `sidecar`.
#[derive(Debug, Args)]
pub struct LockArgs {
    #[command(flatten)]
    pub ensemble: EnsembleArgs,

    /// Path of the lock's node; created if it does not exist
    #[arg(help_heading = "Lock", long, env = "LOCKKEEPER_LOCK", value_name = "PATH")]
    pub lock: LockPath,

    /// Path of the lock's control node; created if it does not exist. Default: the lock's with -control at the end
    #[arg(help_heading = "Lock", long, env = "LOCKKEEPER_CONTROL", value_name = "PATH")]
    pub control: Option<LockPath>,

    /// Do not create the two nodes: wait until another client, such as the operator, has created them and granted this
    /// keeper access
    #[arg(help_heading = "Lock", long, env = "LOCKKEEPER_PROVISIONED", value_parser = clap::builder::BoolishValueParser::new())]
    pub provisioned: bool,

    /// Queue only in the ensemble with this ID: the node of --ensemble-id-node must contain it
    #[arg(
        help_heading = "Lock",
        long,
        env = "LOCKKEEPER_ENSEMBLE_ID",
        value_name = "UUID",
        requires = "ensemble_id_node"
    )]
    pub ensemble_id: Option<Uuid>,

    /// Path of the node that contains the ensemble's ID. The keeper queues only if that ID equals --ensemble-id
    #[arg(
        help_heading = "Lock",
        long,
        env = "LOCKKEEPER_ENSEMBLE_ID_NODE",
        value_name = "PATH",
        requires = "ensemble_id"
    )]
    pub ensemble_id_node: Option<LockPath>,

    /// Other identities that may read our place in the queue: digest:USER:HASH as in an ACL, separated by commas
    // Checked later: clap would show a wrong one, which may be a password.
    #[arg(
        help_heading = "Lock",
        long = "reader",
        env = "LOCKKEEPER_READER",
        value_name = "ID",
        value_delimiter = ','
    )]
    pub readers: Vec<String>,

    /// How long the ensemble keeps the lock after it last heard from the holder
    #[arg(help_heading = "Times", long, env = "LOCKKEEPER_SESSION_TIMEOUT", value_name = "DURATION", default_value = "15s", value_parser = session_timeout)]
    pub session_timeout: Duration,

    /// Time that the application gets between SIGTERM and SIGKILL
    #[arg(help_heading = "Times", long, env = "LOCKKEEPER_STOP_GRACE", value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    pub stop_grace: Duration,

    /// Time between two renewals of the lease. Default: an eighth of the session timeout, or of the lease duration if
    /// that is shorter
    #[arg(help_heading = "Times", long, env = "LOCKKEEPER_RENEW_INTERVAL", value_name = "DURATION", value_parser = duration::parse)]
    pub renew_interval: Option<Duration>,

    /// After this time without a renewal the next contender may take our place; the guard stops the application before that:
    /// DURATION, auto or off
    #[arg(help_heading = "Times", long, env = "LOCKKEEPER_LEASE_DURATION", value_name = "DURATION", default_value = "auto", value_parser = lease_duration)]
    pub lease_duration: LeaseDuration,

    /// The ensemble's tickTime
    #[arg(help_heading = "Times", long, env = "LOCKKEEPER_TICK_TIME", value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub tick_time: Duration,

    /// How many may hold the lock at once
    #[arg(help_heading = "Lock", long, env = "LOCKKEEPER_MAX_HOLDERS", value_name = "N", default_value = "1", value_parser = max_holders)]
    pub max_holders: u32,

    /// Take part in a read/write lock. Default: an exclusive lock
    #[arg(
        help_heading = "Lock",
        long,
        env = "LOCKKEEPER_ACCESS",
        value_name = "ACCESS",
        ignore_case = true
    )]
    pub access: Option<ReadWrite>,

    /// At the deadline: kill the application, or stop it with SIGSTOP until the lock is held again
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_ON_LOSS",
        value_name = "ACTION",
        default_value = "kill",
        ignore_case = true
    )]
    pub on_loss: OnLoss,

    /// While the connection is in doubt: leave the application running, or stop it with SIGSTOP meanwhile
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_ON_SUSPECT",
        value_name = "ACTION",
        default_value = "continue",
        ignore_case = true
    )]
    pub on_suspect: OnSuspect,

    /// When the application exits by itself: release the lock, or hold it while it is started again
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_ON_EXIT",
        value_name = "ACTION",
        default_value = "release",
        ignore_case = true
    )]
    pub on_exit: OnExit,

    /// Wait this long before starting the application if the previous holder did not release the lock cleanly
    #[arg(help_heading = "Lock", long, env = "LOCKKEEPER_LOCK_DELAY", value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub lock_delay: Duration,
}

/// Side of a read/write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadWrite {
    /// Alone.
    Write,
    /// With other readers.
    Read,
}

/// What happens to the application at the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnLoss {
    /// SIGKILL.
    #[default]
    Kill,
    /// SIGSTOP, and SIGCONT when the lock is held again, under a new token.
    Pause,
}

/// What happens to the application while the connection is in doubt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnSuspect {
    /// It goes on until the deadline.
    #[default]
    Continue,
    /// SIGSTOP, and SIGCONT once the same session is confirmed.
    Pause,
}

/// What happens to the lock when the application exits by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OnExit {
    /// The next contender gets it at once.
    #[default]
    Release,
    /// It is held while the application is started again.
    Hold,
}

/// Whether the application is started again after it has exited by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Restart {
    /// `run` ends with it.
    #[default]
    Never,
    /// Whenever the lock is held.
    Always,
}

/// A session timeout travels to the ensemble as a 32 bit signed number of milliseconds
/// (`ConnectRequest` in ZooKeeper's `zookeeper.jute`).
fn session_timeout(text: &str) -> Result<Duration, String> {
    let timeout = duration::parse(text)?;
    match i32::try_from(timeout.as_millis()) {
        Ok(_) => Ok(timeout),
        Err(_) => Err("the longest session timeout of ZooKeeper's protocol is 2147483647ms".to_owned()),
    }
}

fn lease_duration(text: &str) -> Result<LeaseDuration, String> {
    match text {
        "auto" => Ok(LeaseDuration::Auto),
        "off" => Ok(LeaseDuration::Off),
        text => match duration::parse(text) {
            Ok(lease) => Ok(LeaseDuration::Of(lease)),
            Err(error) => Err(format!("{error}; or auto, or off")),
        },
    }
}

fn max_holders(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!(
            "the number of holders is a whole number from 1 to {}",
            u32::MAX
        )),
    }
}
