//! `lockkeeper sidecar` and `lockkeeper guard`: the processes of a pod.
//!
//! * `wrap`: this container runs the keeper alone; `lockkeeper guard -- CMD` is the first process of
//!   the application's container and connects to it.
//! * `signal` (`--container`): the guard is the first process of *this* container and the keeper its
//!   child, as in `run`: the guard has to outlive the keeper, and a container ends with its first
//!   process.

use std::ffi::OsString;
use std::path::Path;

use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_daemon::log;

use crate::args::{GuardArgs, SidecarArgs, SidecarSettings};
use crate::guard::{
    self, Container, ContainerTarget, ContainmentChoice, GuardOptions, Hold, KeeperLink, KeeperProgram,
    TargetKind,
};
use crate::keeper;
use crate::process::{block_on, hide, inherited_guard, is_keeper};

/// Does what `lockkeeper sidecar` was asked for and returns the exit code.
///
/// # Errors
/// What is wrong with the arguments, before anything is started.
pub fn sidecar(args: SidecarArgs) -> Result<u8, Failure> {
    hide()?;
    let log = args.log.clone();
    let settings = args.check()?;
    if let (Some(container), false) = (&settings.container, is_keeper()) {
        return guard_beside(container.clone(), &settings);
    }
    let _log = log::init(log.log_format, log.log)?;
    let guard = if is_keeper() {
        Some(inherited_guard()?)
    } else {
        None
    };
    block_on(keeper::sidecar(settings, guard))
}

/// Does what `lockkeeper guard` was asked for and returns the exit code.
///
/// # Errors
/// What is wrong with the command, before anything is started.
pub fn guard(args: GuardArgs) -> Result<u8, Failure> {
    let GuardArgs {
        guard_socket,
        socket,
        command,
    } = args;
    hide()?;
    guard::is_alone().map_err(Failure::usage)?;
    guard::resolve_command(&command[0]).map_err(|error| Failure::new(error.exit(), error))?;
    let is_first = rustix::process::getpid() == rustix::process::Pid::INIT;
    Ok(guard::run(GuardOptions {
        target: if is_first {
            TargetKind::Pid1
        } else {
            TargetKind::Subreaper(Hold::new(ContainmentChoice::Auto).map_err(Failure::usage)?)
        },
        keeper: KeeperLink::Path(guard_socket),
        command,
        environment: vec![("LOCKKEEPER_SOCKET".into(), OsString::from(socket))],
        loss_code: guard::EXIT_LOST,
        words: None,
    }))
}

fn guard_beside(target: ContainerTarget, settings: &SidecarSettings) -> Result<u8, Failure> {
    let container = Container::new(&target).map_err(Failure::usage)?;
    let keeper = KeeperProgram::new(Path::new(&settings.socket), None)?;
    let code = guard::run(GuardOptions {
        target: TargetKind::Container(Box::new(container)),
        keeper: KeeperLink::Child(keeper),
        command: Vec::new(),
        environment: Vec::new(),
        loss_code: guard::EXIT_LOST,
        words: None,
    });
    // The keeper does it, unless it was killed.
    let _ = std::fs::remove_file(&settings.lease_file);
    // Without a keeper there is no lock, whatever else was the reason: gate the pod anew.
    let lost = [guard::EXIT_LOST, guard::EXIT_SOFTWARE].contains(&code);
    Ok(if lost { Exit::GateAnew.code() } else { code })
}
