//! The subcommands and their options. Doc comments of the fields are the help that users read.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use lockkeeper_daemon::exit::Exit;
use lockkeeper_daemon::log::LogArgs;
use lockkeeper_daemon::{accept, duration, version};

use super::examples;
use super::lock::{LockArgs, Restart};
use super::output::OutputArgs;
use super::pod::PodArgs;
use super::remote::{HandoffArgs, HistoryArgs, InspectArgs, ListArgs, WatchArgs};
use super::ui::UiArgs;
use crate::guard::ContainmentChoice;
use crate::peer::UserName;
use crate::probes::Kind;
use crate::socket_file::check_path;

/// Where the keeper of a pod listens, and where clients look for it.
const DEFAULT_SOCKET: &str = "/run/lockkeeper/lock.sock";

/// Where the keeper of a pod waits for guards.
const DEFAULT_GUARD_SOCKET: &str = "/run/lockkeeper/guard.sock";

/// What `--version` tells.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let features: &[&str] = if cfg!(feature = "tls") { &["tls"] } else { &[] };
    version::long(env!("CARGO_PKG_VERSION"), features)
});

/// Runs an application only while it holds a distributed lock, and stops it before another contender can get the
/// lock.
#[derive(Debug, Parser)]
#[command(
    name = "lockkeeper",
    version,
    long_version = VERSION.as_str(),
    subcommand_required = true,
    disable_help_subcommand = true
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
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
    /// Show the state of the lock
    Status(StatusArgs),
    /// Wait until the lock is in a certain state
    Wait(WaitArgs),
    /// Stop the application, release the lock, and queue again at the end
    Release(ReleaseArgs),
    /// Tell the keeper that its pod is ending (preStop hook of the sidecar)
    Terminating(KeeperArgs),
    /// Execute a probe or hook of the application, but only if the application runs under the lock
    Probe(ProbeArgs),
    /// List the locks of an ensemble, with their holders
    List(Box<ListArgs>),
    /// Show the holders and the whole queue of a lock, as the ensemble has them
    Inspect(Box<InspectArgs>),
    /// Show a lock as the ensemble has it, and again after each change
    Watch(Box<WatchArgs>),
    /// Show who has held a lock, from when until when, and how each hold ended
    History(Box<HistoryArgs>),
    /// Ask the holder of a lock to step down, and wait until another contender holds
    Handoff(Box<HandoffArgs>),
    /// Serve a page on this machine with the locks of an ensemble, live: who holds, who waits, when nobody held
    Ui(Box<UiArgs>),
}

/// Arguments of `lockkeeper run`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::RUN)]
pub struct RunArgs {
    #[command(flatten)]
    pub lock: LockArgs,

    /// Give up if we do not hold the lock after this time; 0 tries once. Default: wait for ever
    #[arg(help_heading = "Waiting and exit codes", long, env = "LOCKKEEPER_WAIT_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub wait_timeout: Option<Duration>,

    /// Exit code when other contenders have the lock and --wait-timeout is over. Default: 80 if it tries once, else 81
    #[arg(
        help_heading = "Waiting and exit codes",
        long,
        short = 'E',
        env = "LOCKKEEPER_CONFLICT_EXIT_CODE",
        value_name = "N"
    )]
    pub conflict_exit_code: Option<u8>,

    /// Exit code when the lock was lost and the command was stopped
    #[arg(help_heading = "Waiting and exit codes", long, env = "LOCKKEEPER_LOSS_EXIT_CODE", value_name = "N", default_value_t = Exit::LockLost.code())]
    pub loss_exit_code: u8,

    /// When the command exits by itself: end as well, or start it again under the lock
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_RESTART",
        value_name = "WHEN",
        default_value = "never",
        ignore_case = true
    )]
    pub restart: Restart,

    /// How to find the command and every process that it starts, so that all are stopped: auto uses a control group if it
    /// can, else a sweep of /proc
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_CONTAINMENT",
        value_name = "HOW",
        default_value = "auto",
        ignore_case = true
    )]
    pub containment: ContainmentChoice,

    /// Unix socket on which to answer questions about the lock. Default: one in a private directory
    // Not LOCKKEEPER_SOCKET: that is set for the command, which may be another `lockkeeper run`.
    #[arg(help_heading = "Socket, probes and metrics", long, env = "LOCKKEEPER_RUN_SOCKET", value_name = "PATH", value_parser = socket_path())]
    pub socket: Option<PathBuf>,

    /// TCP address for probes and metrics. Default: none
    #[arg(help_heading = "Socket, probes and metrics", long, env = "LOCKKEEPER_ADMIN_LISTEN", value_name = "IP:PORT", value_parser = accept::address)]
    pub admin_listen: Option<SocketAddr>,

    #[command(flatten)]
    pub log: LogArgs,

    /// The command to run, and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Arguments of `lockkeeper sidecar`.
#[derive(Debug, Args)]
pub struct SidecarArgs {
    #[command(flatten)]
    pub lock: LockArgs,

    /// Unix socket on which to answer questions about the lock
    #[arg(help_heading = "Socket, probes and metrics", long, env = "LOCKKEEPER_SOCKET", value_name = "PATH", default_value = DEFAULT_SOCKET, value_parser = socket_path())]
    pub socket: PathBuf,

    /// Unix socket on which to wait for guards
    #[arg(help_heading = "Socket, probes and metrics", long, env = "LOCKKEEPER_GUARD_SOCKET", value_name = "PATH", default_value = DEFAULT_GUARD_SOCKET, value_parser = socket_path())]
    pub guard_socket: PathBuf,

    /// User ID of the application's container, or `any`: processes of this user may connect as the guard and ask for a
    /// release. Root and the keeper's own user always may. May be repeated
    #[arg(
        help_heading = "Application",
        long = "guard-user",
        env = "LOCKKEEPER_GUARD_USER",
        value_name = "UID",
        value_delimiter = ','
    )]
    pub guard_users: Vec<UserName>,

    /// Guard this container of the pod from here, by signals (the pod shares its process namespace).
    /// Default: the container runs `lockkeeper guard`
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_CONTAINER",
        value_name = "NAME"
    )]
    pub container: Option<String>,

    /// TCP address for probes and metrics
    #[arg(help_heading = "Socket, probes and metrics", long, env = "LOCKKEEPER_ADMIN_LISTEN", value_name = "IP:PORT", default_value = "[::]:9808", value_parser = accept::address)]
    pub admin_listen: SocketAddr,

    /// File with the fencing token, there only while the lock is held
    #[arg(
        help_heading = "Application",
        long,
        env = "LOCKKEEPER_LEASE_FILE",
        value_name = "PATH",
        default_value = "/run/lockkeeper/lease.env"
    )]
    pub lease_file: PathBuf,

    #[command(flatten)]
    pub pod: PodArgs,

    #[command(flatten)]
    pub log: LogArgs,
}

/// Arguments of `lockkeeper guard`.
#[derive(Debug, Args)]
pub struct GuardArgs {
    /// Unix socket on which the keeper waits for guards. Set only on the command line, so that variables of an
    /// image or of the application cannot choose another keeper
    #[arg(long, value_name = "PATH", default_value = DEFAULT_GUARD_SOCKET, value_parser = socket_path())]
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
#[command(after_long_help = examples::STATUS)]
pub struct StatusArgs {
    #[command(flatten)]
    pub keeper: KeeperArgs,

    #[command(flatten)]
    pub output: OutputArgs,

    /// Show it again after each change, until the keeper ends
    #[arg(long, short)]
    pub watch: bool,
}

/// What `wait` waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WaitFor {
    /// The lock is held.
    #[default]
    Held,
    /// The lock is not held: released, lost, or still in the queue.
    Released,
    /// There is a place in the queue, or the lock is held already.
    Queued,
}

/// Arguments of `lockkeeper wait`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::WAIT)]
pub struct WaitArgs {
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

    /// Give up after this time (exit code 81). Default: wait for ever
    #[arg(long, env = "LOCKKEEPER_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub timeout: Option<Duration>,
}

/// Arguments of `lockkeeper release`.
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub keeper: KeeperArgs,

    /// Give up the lock although processes have outlived SIGKILL: it expires, and they may still run
    #[arg(long)]
    pub abandon_survivors: bool,
}

/// Arguments of `lockkeeper probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    #[command(flatten)]
    pub keeper: KeeperArgs,

    /// Which probe or hook this is
    #[arg(long, env = "LOCKKEEPER_PROBE_KIND", value_name = "KIND", ignore_case = true)]
    pub kind: Kind,

    /// Unix socket on which the keeper waits for guards: the postStart hook is stored beside it. Set only on the command
    /// line, as for `lockkeeper guard`
    #[arg(long, value_name = "PATH", default_value = DEFAULT_GUARD_SOCKET, value_parser = socket_path())]
    pub guard_socket: PathBuf,

    /// The command to run, and its arguments. Default: for liveness and readiness, the probe in the keeper's
    /// --app-probes
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// Where a client finds the keeper.
#[derive(Debug, Args)]
pub struct KeeperArgs {
    /// Unix socket of the keeper
    #[arg(long, env = "LOCKKEEPER_SOCKET", value_name = "PATH", default_value = DEFAULT_SOCKET, value_parser = socket_path())]
    pub socket: PathBuf,
}

fn socket_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| check_path(&path).map(|()| path))
}
