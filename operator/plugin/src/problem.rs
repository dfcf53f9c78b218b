//! What an API server does not do, in a sentence.

use lockkeeper_daemon::exit::Failure;

/// The API server could not be asked to do `what`.
pub(crate) fn failed(what: &str, error: &kube::Error) -> Failure {
    Failure::unavailable(format!("cannot {what}: {error}"))
}
