//! Arguments that were checked against each other.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_daemon::credentials::Credentials;
use lockkeeper_daemon::exit::Failure;
#[cfg(feature = "tls")]
use lockkeeper_daemon::tls::Tls;
use lockkeeper_lock::zookeeper::{ConnectString, InvalidReader, Reader};
use lockkeeper_lock::{EnsembleId, Identity, Timing, path};

use super::command::{RunArgs, SidecarArgs};
use super::ensemble::EnsembleSettings;
use super::lock::{LockArgs, OnExit, OnLoss, OnSuspect, ReadWrite, Restart};
use super::pod::PodSettings;
use crate::access::Access;
use crate::guard::{ContainerTarget, ContainmentChoice};
use crate::peer::Users;
use crate::probes::AppProbes;
use crate::view::About;

/// A lock and what happens to the application with it: everything fits together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub connect: ConnectString,
    /// Path of the lock root, below the chroot.
    pub lock: String,
    /// Path of its control node, below the chroot.
    pub control: String,
    /// Another client creates both nodes.
    pub provisioned: bool,
    /// The only ensemble to queue in.
    pub ensemble: Option<EnsembleId>,
    /// Other identities that may read our contenders.
    pub readers: Vec<Reader>,
    pub identity: Identity,
    pub access: Access,
    /// All times of the lease; they passed [`Timing::check`].
    pub timing: Timing,
    pub on_loss: OnLoss,
    pub on_suspect: OnSuspect,
    pub on_exit: OnExit,
    /// Pause before the start after a holder that did not release cleanly.
    pub lock_delay: Duration,
    pub credentials: Option<Credentials>,
    /// How to speak TLS with the servers that want it.
    #[cfg(feature = "tls")]
    pub tls: Tls,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSettings {
    pub lock: Settings,
    /// How long to wait for it; `None` for ever, zero to try once.
    pub wait_timeout: Option<Duration>,
    /// Exit code when others have the lock; `None` for the default.
    pub conflict_code: Option<u8>,
    /// Exit code after a loss.
    pub loss_code: u8,
    pub restart: Restart,
    pub containment: ContainmentChoice,
    /// The socket; `None` for one in a private directory.
    pub socket: Option<PathBuf>,
    /// Where to listen for probes; `None` for nowhere.
    pub admin_listen: Option<SocketAddr>,
    /// The command and its arguments; not empty.
    pub command: Vec<OsString>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarSettings {
    pub lock: Settings,
    pub socket: PathBuf,
    pub guard_socket: PathBuf,
    /// The users that may guard, and ask for a release.
    pub users: Users,
    /// The container to guard by signals.
    pub container: Option<ContainerTarget>,
    /// Where to listen for probes.
    pub admin_listen: SocketAddr,
    /// The file with the token.
    pub lease_file: PathBuf,
    pub pod: PodSettings,
}

// === impl Settings ===

impl Settings {
    /// What sockets, probes and metrics show of the lock whatever its state is.
    pub fn about(&self) -> About {
        About {
            lock: self.lock.clone(),
            access: self.access,
            timing: self.timing,
            pauses: self.on_loss == OnLoss::Pause || self.on_suspect == OnSuspect::Pause,
        }
    }
}

impl LockArgs {
    /// Reads the files and checks what clap cannot: what does not fit together.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn check(self) -> Result<Settings, Failure> {
        // All fields by name: an unused one does not compile.
        let Self {
            ensemble,
            lock,
            control,
            provisioned,
            ensemble_id,
            ensemble_id_node,
            readers,
            session_timeout,
            stop_grace,
            renew_interval,
            lease_duration,
            tick_time,
            max_holders,
            access,
            on_loss,
            on_suspect,
            on_exit,
            lock_delay,
        } = self;
        let access = match (access, max_holders) {
            (None, 1) => Access::Exclusive,
            (None, holders) => Access::Semaphore(holders),
            (Some(ReadWrite::Write), 1) => Access::Write,
            (Some(ReadWrite::Read), 1) => Access::Read,
            (Some(_), _) => {
                return Err(Failure::usage(format!(
                    "--access and --max-holders {max_holders} exclude each other: a read/write lock has one writer \
                     or any number of readers; leave one of them out"
                )));
            }
        };
        let lock = lock.to_string();
        let control = control.map_or_else(|| format!("{lock}-control"), |control| control.to_string());
        for (flag, path) in [("--lock", &lock), ("--control", &control)] {
            let whole_path = format!("{}{path}", ensemble.connect.chroot());
            if path::is_reserved(&whole_path) {
                return Err(Failure::usage(format!(
                    "{flag} {whole_path} is ZooKeeper's own: take a path that is not below /zookeeper"
                )));
            }
        }
        if control == lock
            || control
                .strip_prefix(&lock)
                .is_some_and(|rest| rest.starts_with('/'))
        {
            return Err(Failure::usage(format!(
                "--control {control} is the lock itself or below it, where only contenders may be: take a path \
                 beside it, such as {lock}-control"
            )));
        }
        let readers = readers
            .iter()
            .map(|reader| reader.parse())
            .collect::<Result<_, InvalidReader>>()
            .map_err(|error| Failure::usage(format!("--reader {error}")))?;
        let timing = Timing {
            session_timeout,
            tick_time,
            renew_interval: renew_interval.unwrap_or(session_timeout / 8),
            stop_grace,
            lease_duration,
        };
        timing.check().map_err(Failure::usage)?;
        let EnsembleSettings {
            connect,
            credentials,
            #[cfg(feature = "tls")]
            tls,
        } = ensemble.check()?;
        Ok(Settings {
            connect,
            lock,
            control,
            provisioned,
            ensemble: ensemble_id.zip(ensemble_id_node).map(|(id, node)| EnsembleId {
                node: node.to_string(),
                id,
            }),
            readers,
            identity: Identity::default(),
            access,
            timing,
            on_loss,
            on_suspect,
            on_exit,
            lock_delay,
            credentials,
            #[cfg(feature = "tls")]
            tls,
        })
    }
}

// === impl RunSettings ===

impl RunArgs {
    /// See [`LockArgs::check`].
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(self) -> Result<RunSettings, Failure> {
        let Self {
            lock,
            wait_timeout,
            conflict_exit_code,
            loss_exit_code,
            restart,
            containment,
            socket,
            admin_listen,
            log: _,
            command,
        } = self;
        if lock.on_exit == OnExit::Hold && restart == Restart::Never {
            return Err(Failure::usage(
                "--on-exit hold keeps the lock until the command is started again, but with --restart never it is never \
                 started again: add --restart always, or leave --on-exit out",
            ));
        }
        if command.first().is_none_or(|program| program.is_empty()) {
            return Err(Failure::usage(
                "the command after -- is empty: write the program to run and its arguments",
            ));
        }
        Ok(RunSettings {
            lock: lock.check()?,
            wait_timeout,
            conflict_code: conflict_exit_code,
            loss_code: loss_exit_code,
            restart,
            containment,
            socket,
            admin_listen,
            command,
        })
    }
}

// === impl SidecarSettings ===

impl SidecarArgs {
    /// See [`LockArgs::check`].
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(self) -> Result<SidecarSettings, Failure> {
        let Self {
            lock,
            socket,
            guard_socket,
            guard_users,
            container,
            admin_listen,
            lease_file,
            pod,
            log: _,
        } = self;
        let container = match container {
            Some(name) if name.is_empty() => {
                return Err(Failure::usage(
                    "--container is empty: give the name of a container of this pod",
                ));
            }
            Some(name) => Some(ContainerTarget {
                name,
                lease_file: lease_file.clone(),
            }),
            None => None,
        };
        let (identity, pod) = pod.check()?;
        let answers_for_it = pod.app_probes != AppProbes::default() || pod.app_token.is_some();
        if container.is_some() && answers_for_it {
            return Err(Failure::usage(
                "--app-probes and --app-token are for a container that runs `lockkeeper guard`; one that is guarded from here \
                 (--container) starts with the lock and keeps its own probes: leave one of them out",
            ));
        }
        Ok(SidecarSettings {
            lock: Settings {
                identity,
                ..lock.check()?
            },
            socket,
            guard_socket,
            users: Users::with(&guard_users),
            container,
            admin_listen,
            lease_file,
            pod,
        })
    }
}
