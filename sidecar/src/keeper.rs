//! The keeper: owns the session and the place in the queue, tells the guard until when the
//! application may run, and answers questions about it.
//!
//! The pure state machine [`decider`] makes its decisions, [`keeping`] carries them out, and [`serve`] sets up
//! sockets, probes and metrics.

mod contender;
pub(crate) mod decider;
mod ensemble;
mod keeping;
mod leftovers;
mod observer;
pub(crate) mod policy;
mod serve;
mod shown;
mod signals;

use std::os::unix::net::UnixStream;
use std::path::Path;

use lockkeeper_daemon::exit::{self, Failure};
use lockkeeper_daemon::log;

use self::policy::{Kind, Policy};
use self::serve::{Doors, keep};
use crate::admin::AdminServer;
use crate::args::{RunSettings, SidecarSettings};
use crate::guard::ContainerKiller;
use crate::guard::handed_to_keeper::Will;
use crate::lease_env::LeaseEnv;
use crate::link::keeper_end::KeeperEnd;
use crate::link::protocol::ToGuard;
use crate::peer::Users;
use crate::probes::AppProbes;
use crate::socket::SocketServer;

/// Keeps the lock for `lockkeeper run`, whose guard is at the other end of `guard`, and sends it the exit code at the
/// end. The keeper answers questions about the lock at `socket`. `will` is what that guard passes to us for the case
/// that it is killed.
///
/// # Errors
/// When there is no such guard. All other errors go to stderr and into the exit code.
pub(crate) async fn run(
    settings: RunSettings,
    guard: UnixStream,
    will: Will,
    socket: &Path,
) -> Result<u8, Failure> {
    let policy = Policy::of_run(&settings);
    let mut guards = KeeperEnd::parent(guard)?;
    let mut has_begun = false;
    let kept = async {
        let socket = match settings.socket {
            Some(_) => SocketServer::bind(socket)?,
            None => SocketServer::bind_private(socket)?,
        };
        let admin = settings.admin_listen.map(AdminServer::bind).transpose()?;
        let doors = Doors {
            socket,
            users: Users::own(),
            admin,
            lease: None,
            killer: None,
            will: Some(will),
        };
        keep(
            settings.lock,
            policy,
            AppProbes::default(),
            &mut guards,
            doors,
            &mut has_begun,
        )
        .await
    };
    let kept = kept.await;
    Ok(finish(guards, kept, has_begun))
}

/// Keeps the lock of a pod: for the guard at the other end of `guard`, which is beside the
/// application's container, or for those that connect to a socket.
///
/// # Errors
/// As [`run`], and when the socket for guards cannot be made.
pub(crate) async fn sidecar(settings: SidecarSettings, guard: Option<UnixStream>) -> Result<u8, Failure> {
    let (kind, mut guards) = match guard {
        Some(guard) => (Kind::Signal, KeeperEnd::parent(guard)?),
        None => (
            Kind::Wrap,
            KeeperEnd::listen(&settings.guard_socket, settings.users.clone())?,
        ),
    };
    let policy = Policy::of_sidecar(&settings, kind);
    let mut has_begun = false;
    let kept = async {
        let lease = LeaseEnv::new(settings.lease_file)?;
        let killer = settings.container.as_ref().map(ContainerKiller::new).transpose();
        let killer =
            killer.map_err(|error| Failure::software(format!("cannot look at processes: {error}")))?;
        let socket = SocketServer::bind(&settings.socket)?;
        if settings.pod.app_token.is_none() && settings.pod.app_probes.pre_stop.is_some() {
            tracing::warn!(
                "The preStop hook of the application is not sent, since every client that reaches the port could ask \
                 for it; give --app-token"
            );
        }
        let admin = AdminServer::bind(settings.admin_listen)?.with_app_token(settings.pod.app_token);
        let doors = Doors {
            socket,
            users: settings.users,
            admin: Some(admin),
            lease: Some(lease),
            killer,
            will: None,
        };
        keep(
            settings.lock,
            policy,
            settings.pod.app_probes,
            &mut guards,
            doors,
            &mut has_begun,
        )
        .await
    };
    let kept = kept.await;
    Ok(finish(guards, kept, has_begun))
}

/// Reports what went wrong, and sends a guard that is our parent its exit code. This comes last, since it ends the
/// process that the user started.
fn finish(mut guards: KeeperEnd, kept: Result<u8, Failure>, has_begun: bool) -> u8 {
    let code = kept.unwrap_or_else(|failure| {
        exit::tell(&failure.sentence);
        failure.exit.code()
    });
    if guards.parent_pid().is_some() {
        // A guard that is the first process of its container ends all others there.
        log::flush();
        guards.tell(if has_begun {
            ToGuard::Finish { code }
        } else {
            ToGuard::CannotBegin { code }
        });
    }
    code
}
