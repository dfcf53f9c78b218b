//! The command line. Doc comments of the fields are the help that users read.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lockkeeper_lock::LockPath;
use lockkeeper_lock::zookeeper::ConnectString;

use crate::client::{OutputFormat, WaitFor};
use crate::duration;
use crate::guard::DEFAULT_TERMINATION_LOG;
use crate::log::{LogFilter, LogFormat};
use crate::socket::check_path;

mod secrets;
mod settings;
mod usage;

pub use secrets::Credentials;
#[cfg(feature = "tls")]
pub use secrets::{ClientIdentity, Tls};
pub use settings::{Access, RunSettings, Settings, SidecarSettings};
pub use usage::{Parsed, parse};

/// Where the keeper of a pod listens, and where clients look for it.
pub const DEFAULT_SOCKET: &str = "/run/lockkeeper/lock.sock";

/// Where the keeper of a pod waits for guards.
pub const DEFAULT_GUARD_SOCKET: &str = "/run/lockkeeper/guard.sock";

/// Runs an application only while it holds a distributed lock, and stops it before anybody else
/// can get the lock.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version,
    subcommand_required = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Acquire the lock, run a command under it, and stop the command before the lock can be lost
    Run(Box<RunArgs>),
    /// Keep the lock for the other containers of this pod
    Sidecar(Box<SidecarArgs>),
    /// Run a command while the keeper of this pod holds the lock (first process of a container)
    Guard(GuardArgs),
    /// Copy this binary into a directory, such as a volume shared with other containers
    Install(InstallArgs),
    /// Show what the keeper says of the lock
    Status(StatusArgs),
    /// Wait until the lock is in a certain state
    Wait(WaitArgs),
    /// Stop the application, release the lock, and queue again at the end
    Release(ReleaseArgs),
}

/// Arguments of `lockkeeper run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The lock.
    #[command(flatten)]
    pub lock: LockArgs,

    /// Give up when the lock is not held after this time (exit code 69); 0 tries once. Default: wait for ever
    #[arg(long, env = "LOCKKEEPER_WAIT_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub wait_timeout: Option<Duration>,

    /// When the command exits by itself: end as well, or start it again under the lock
    #[arg(
        long,
        env = "LOCKKEEPER_RESTART",
        value_name = "WHEN",
        default_value = "never",
        ignore_case = true
    )]
    pub restart: Restart,

    /// Unix socket on which to answer questions about the lock. Default: one in a private directory
    // Not LOCKKEEPER_SOCKET: that is set for the command, which may be another `lockkeeper run`.
    #[arg(long, env = "LOCKKEEPER_RUN_SOCKET", value_name = "PATH", value_parser = socket_path())]
    pub socket: Option<PathBuf>,

    /// TCP address for probes and metrics. Default: none
    #[arg(long, env = "LOCKKEEPER_ADMIN_LISTEN", value_name = "IP:PORT", value_parser = listen_address)]
    pub admin_listen: Option<SocketAddr>,

    /// The log.
    #[command(flatten)]
    pub log: LogArgs,

    /// The command to run, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Arguments of `lockkeeper sidecar`.
#[derive(Debug, Args)]
pub struct SidecarArgs {
    /// The lock.
    #[command(flatten)]
    pub lock: LockArgs,

    /// Unix socket on which to answer questions about the lock
    #[arg(long, env = "LOCKKEEPER_SOCKET", value_name = "PATH", default_value = DEFAULT_SOCKET, value_parser = socket_path())]
    pub socket: PathBuf,

    /// Unix socket on which to wait for guards
    #[arg(long, env = "LOCKKEEPER_GUARD_SOCKET", value_name = "PATH", default_value = DEFAULT_GUARD_SOCKET, value_parser = socket_path())]
    pub guard_socket: PathBuf,

    /// Guard this container of the pod from here, by signals (the pod shares its process namespace).
    /// Default: the container runs `lockkeeper guard`
    #[arg(long, env = "LOCKKEEPER_CONTAINER", value_name = "NAME")]
    pub container: Option<String>,

    /// The container's terminationMessagePath, by which its processes are told from others
    #[arg(long, env = "LOCKKEEPER_TERMINATION_LOG", value_name = "PATH", default_value = DEFAULT_TERMINATION_LOG)]
    pub termination_log: String,

    /// TCP address for probes and metrics
    #[arg(long, env = "LOCKKEEPER_ADMIN_LISTEN", value_name = "IP:PORT", default_value = "[::]:9808", value_parser = listen_address)]
    pub admin_listen: SocketAddr,

    /// File with the fencing token, there only while the lock is held
    #[arg(
        long,
        env = "LOCKKEEPER_LEASE_FILE",
        value_name = "PATH",
        default_value = "/run/lockkeeper/lease.env"
    )]
    pub lease_file: PathBuf,

    /// The log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of `lockkeeper guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Unix socket on which the keeper waits for guards
    #[arg(long, env = "LOCKKEEPER_GUARD_SOCKET", value_name = "PATH", default_value = DEFAULT_GUARD_SOCKET, value_parser = socket_path())]
    pub guard_socket: PathBuf,

    /// Unix socket on which the keeper answers questions, for the application's environment
    #[arg(long, env = "LOCKKEEPER_SOCKET", value_name = "PATH", default_value = DEFAULT_SOCKET, value_parser = socket_path())]
    pub socket: PathBuf,

    /// The command to run, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Arguments of `lockkeeper install`.
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// Where to copy to
    #[arg(env = "LOCKKEEPER_INSTALL_DIR", value_name = "DIR")]
    pub directory: PathBuf,
}

/// Arguments of `lockkeeper status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The keeper.
    #[command(flatten)]
    pub keeper: KeeperArgs,

    /// How to show it
    #[arg(
        long,
        short,
        env = "LOCKKEEPER_OUTPUT",
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub output: OutputFormat,
}

/// Arguments of `lockkeeper wait`.
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The keeper.
    #[command(flatten)]
    pub keeper: KeeperArgs,

    /// What to wait for
    #[arg(
        long = "for",
        env = "LOCKKEEPER_WAIT_FOR",
        value_name = "STATE",
        default_value = "held",
        ignore_case = true
    )]
    pub wait_for: WaitFor,

    /// Give up after this time (exit code 69). Default: wait for ever
    #[arg(long, env = "LOCKKEEPER_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
}

/// Arguments of `lockkeeper release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// The keeper.
    #[command(flatten)]
    pub keeper: KeeperArgs,
}

/// Where a client finds the keeper.
#[derive(Debug, Args)]
pub struct KeeperArgs {
    /// Unix socket of the keeper
    #[arg(long, env = "LOCKKEEPER_SOCKET", value_name = "PATH", default_value = DEFAULT_SOCKET, value_parser = socket_path())]
    pub socket: PathBuf,
}

/// The lock, and what happens to the application with it: shared by `run` and `sidecar`.
#[derive(Debug, Args)]
pub struct LockArgs {
    /// The ensemble: HOST:PORT,… with an optional /chroot at the end; tcp+tls://HOST:PORT for TLS
    #[arg(long, env = "LOCKKEEPER_CONNECT", value_name = "HOSTS")]
    pub connect: ConnectString,

    /// Path of the lock's node; made when it is missing
    #[arg(long, env = "LOCKKEEPER_LOCK", value_name = "PATH")]
    pub lock: LockPath,

    /// How long the ensemble keeps the lock of a holder that is silent
    #[arg(long, env = "LOCKKEEPER_SESSION_TIMEOUT", value_name = "DURATION", default_value = "15s", value_parser = session_timeout)]
    pub session_timeout: Duration,

    /// Time that the application gets between SIGTERM and SIGKILL
    #[arg(long, env = "LOCKKEEPER_STOP_GRACE", value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    pub stop_grace: Duration,

    /// Time between two renewals of the lease. Default: an eighth of the session timeout
    #[arg(long, env = "LOCKKEEPER_RENEW_INTERVAL", value_name = "DURATION", value_parser = duration::parse)]
    pub renew_interval: Option<Duration>,

    /// The ensemble's tickTime
    #[arg(long, env = "LOCKKEEPER_TICK_TIME", value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub tick_time: Duration,

    /// How many may hold the lock at once
    #[arg(long, env = "LOCKKEEPER_MAX_HOLDERS", value_name = "N", default_value = "1", value_parser = max_holders)]
    pub max_holders: u32,

    /// Take part in a read/write lock. Default: an exclusive lock
    #[arg(long, env = "LOCKKEEPER_ACCESS", value_name = "ACCESS", ignore_case = true)]
    pub access: Option<ReadWrite>,

    /// At the deadline: kill the application, or stop it with SIGSTOP until the lock is held again
    #[arg(
        long,
        env = "LOCKKEEPER_ON_LOSS",
        value_name = "ACTION",
        default_value = "kill",
        ignore_case = true
    )]
    pub on_loss: OnLoss,

    /// While the connection is in doubt: leave the application running, or stop it with SIGSTOP meanwhile
    #[arg(
        long,
        env = "LOCKKEEPER_ON_SUSPECT",
        value_name = "ACTION",
        default_value = "continue",
        ignore_case = true
    )]
    pub on_suspect: OnSuspect,

    /// When the application exits by itself: release the lock, or hold it while it is started again
    #[arg(
        long,
        env = "LOCKKEEPER_ON_EXIT",
        value_name = "ACTION",
        default_value = "release",
        ignore_case = true
    )]
    pub on_exit: OnExit,

    /// Wait this long before starting after a holder that did not release cleanly
    #[arg(long, env = "LOCKKEEPER_LOCK_DELAY", value_name = "DURATION", default_value = "0s", value_parser = duration::parse)]
    pub lock_delay: Duration,

    /// File with the credentials: USER:PASSWORD or digest:USER:PASSWORD
    #[arg(long, env = "LOCKKEEPER_AUTH_FILE", value_name = "FILE")]
    pub auth_file: Option<PathBuf>,

    /// Certificates (PEM) of the authorities that the ensemble's certificates must come from
    #[cfg(feature = "tls")]
    #[arg(long, env = "LOCKKEEPER_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,

    /// Own certificate (PEM) to show to the ensemble
    #[cfg(feature = "tls")]
    #[arg(long, env = "LOCKKEEPER_TLS_CERT", value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// Key (PEM) of the own certificate
    #[cfg(feature = "tls")]
    #[arg(long, env = "LOCKKEEPER_TLS_KEY", value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
}

/// What is logged, and how.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// How a line of the log is written
    #[arg(
        long,
        env = "LOCKKEEPER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,

    /// What is logged: LEVEL or TARGET=LEVEL, separated by commas
    // The client's warnings are about single servers; the lock says itself what matters of them.
    #[arg(
        long,
        env = "LOCKKEEPER_LOG",
        value_name = "FILTER",
        default_value = "info,zookeeper_client=error"
    )]
    pub log: LogFilter,
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
    /// The next one gets it at once.
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

fn socket_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| check_path(&path).map(|()| path))
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

fn max_holders(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!(
            "the number of holders is a whole number from 1 to {}",
            u32::MAX
        )),
    }
}

fn listen_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "an address to listen on is IP:PORT, such as 127.0.0.1:9808, or [::]:9808 for all addresses"
            .to_owned()
    })
}
