//! The processes of this binary: how they hide from others, and how one knows that it is a keeper.
//!
//! The keeper is the same binary with the same arguments, told by a variable that it is the keeper. Its standard input
//! is the socket to the guard.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use lockkeeper_daemon::exit::Failure;
use rustix::process::DumpableBehavior;

/// Set for the keeper process: the path on which it serves.
pub(crate) const KEEPER: &str = "LOCKKEEPER_KEEPER_SOCKET";

/// Set for the keeper process, which logs it: why its guard could not make a control group.
pub(crate) const NO_GROUP: &str = "LOCKKEEPER_KEEPER_NO_GROUP";

/// Set for the keeper process: the process that became its guard had children of its own before.
pub(crate) const ELDERS: &str = "LOCKKEEPER_KEEPER_ELDERS";

/// Keeps other processes of our user out of this one (PR_SET_DUMPABLE(2const)): in a pod that shares its process
/// namespace `/proc` would show an application of the same user the identity of the namespace, which is in our files and
/// environment; and an application could stop its guard, the first process of its container, as a debugger does.
pub(crate) fn hide() -> Result<(), Failure> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|error| {
        Failure::software(format!(
            "cannot hide from other processes of the same user: {error}"
        ))
    })
}

/// Whether a guard started this process.
pub(crate) fn is_keeper() -> bool {
    keeper_socket().is_some()
}

/// In a process that a guard started: where to serve.
pub(crate) fn keeper_socket() -> Option<OsString> {
    std::env::var_os(KEEPER)
}

/// In a process that a guard started: why there is no control group.
pub(crate) fn why_no_group() -> Option<String> {
    std::env::var(NO_GROUP).ok()
}

/// In a process that a guard started: whether the guard's process had children of its own before. They, and what they
/// start, descend from the guard, and are not stopped with the application.
pub(crate) fn guard_has_elders() -> bool {
    std::env::var_os(ELDERS).is_some()
}

/// In a process that a guard started: the socket to its guard.
pub(crate) fn inherited_guard() -> Result<UnixStream, Failure> {
    match std::io::stdin().as_fd().try_clone_to_owned() {
        Ok(socket) => Ok(UnixStream::from(socket)),
        Err(error) => Err(Failure::software(format!(
            "the keeper has no socket to its guard: {error}"
        ))),
    }
}

/// Runs a keeper, or questions to the ensemble, to its end on this thread.
pub(crate) fn block_on<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(cannot_start)?;
    let result = runtime.block_on(task);
    // A resolver that does not answer holds a thread: nothing is to wait for that.
    runtime.shutdown_background();
    result
}

pub(crate) fn cannot_start(error: std::io::Error) -> Failure {
    Failure::software(format!("cannot start: {error}"))
}
