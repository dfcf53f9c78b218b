//! What an API server does not do, in a sentence.

use kube::Api;
use kube::api::ListParams;
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::exit::Failure;

/// The API server could not be asked to do `what`.
pub(crate) fn failed(what: &str, error: &kube::Error) -> Failure {
    let remedy = match error {
        // Of a list and of a watch: the resource itself is missing.
        kube::Error::Api(answer) if answer.code == 404 => {
            "; this cluster has no resource DistributedLock: install the chart lockkeeper-crds"
        }
        _ => "",
    };
    Failure::unavailable(format!("cannot {what}: {error}{remedy}"))
}

/// A lock that the API server does not have, or it does not have any.
pub(crate) async fn missing(locks: &Api<DistributedLock>, namespace: &str, name: &str) -> Failure {
    match locks.list(&ListParams::default().limit(1)).await {
        Err(error) => failed("read the lock", &error),
        Ok(_) => Failure::usage(format!(
            "there is no DistributedLock {name} in the namespace {namespace}; `kubectl lockkeeper list -A` shows all"
        )),
    }
}
