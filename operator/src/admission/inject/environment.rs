//! The sidecar's settings: variables that `lockkeeper sidecar --help` lists.

use std::fmt::Display;

use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use lockkeeper_crds::lock::LockMode;
use lockkeeper_crds::{ApiDuration, DistributedLockSpec, keys};
use lockkeeper_daemon::log::LogFormat;

use super::context::Context;
use super::names;
use crate::zookeeper::ensemble_id;

/// Variable of the sidecar with the place of its lock.
const LOCK: &str = "LOCKKEEPER_LOCK";

/// Variable of the sidecar with the ID of its ensemble.
const ENSEMBLE: &str = "LOCKKEEPER_ENSEMBLE_ID";

/// Kubernetes' default of `terminationGracePeriodSeconds`.
const TERMINATION_GRACE_SECONDS: i64 = 30;

/// Labels that controllers put on pods to tell revisions apart.
const REVISION_LABELS: [&str; 2] = ["pod-template-hash", "controller-revision-hash"];

/// Everything that the lock says.
pub(crate) fn of_lock(name: &str, spec: &DistributedLockSpec, context: &Context<'_>) -> Vec<EnvVar> {
    let sidecar = context.sidecar;
    let own = spec.zookeeper.as_ref();
    let connect = own
        .map(|own| own.connect.as_str())
        .or(sidecar.connect.as_deref())
        .unwrap_or_default();
    let tick_time = ApiDuration::from(spec.timing(sidecar.tick_time).tick_time);
    let (root, namespace) = (&sidecar.root, context.namespace);
    let mut env = vec![
        var("LOCKKEEPER_CONNECT", connect),
        of_name(name, context),
        var("LOCKKEEPER_CONTROL", format!("{root}/control/{namespace}/{name}")),
        var("LOCKKEEPER_PROVISIONED", true),
        of_ensemble(context),
        var("LOCKKEEPER_ENSEMBLE_ID_NODE", ensemble_id::node(root)),
        var("LOCKKEEPER_AUTH_FILE", format!("{}/auth", names::AUTH_DIR)),
        var("LOCKKEEPER_TICK_TIME", tick_time),
        var("LOCKKEEPER_SESSION_TIMEOUT", spec.session_timeout),
        var("LOCKKEEPER_STOP_GRACE", spec.stop_grace),
        var(keys::LEASE_DURATION, spec.lease_duration),
        var("LOCKKEEPER_ON_LOSS", spec.on_loss.as_str().to_lowercase()),
        var("LOCKKEEPER_ON_SUSPECT", spec.on_suspect.as_str().to_lowercase()),
        var("LOCKKEEPER_ON_EXIT", spec.on_exit.as_str().to_lowercase()),
        var("LOCKKEEPER_LOCK_DELAY", spec.lock_delay),
        var("LOCKKEEPER_LOG_FORMAT", word_of(sidecar.log_format)),
    ];
    env.extend(
        spec.renew_interval
            .map(|interval| var("LOCKKEEPER_RENEW_INTERVAL", interval)),
    );
    if spec.mode == LockMode::Exclusive && spec.max_holders > 1 {
        env.push(var("LOCKKEEPER_MAX_HOLDERS", spec.max_holders));
    }
    // In another ensemble the operator reads with the identity of the pods themselves.
    if !sidecar.readers.is_empty() && sidecar.is_own_ensemble(spec) {
        env.push(var("LOCKKEEPER_READER", sidecar.readers.join(",")));
    }
    if connect.contains("tcp+tls://") {
        env.push(var("LOCKKEEPER_TLS_CA", format!("{}/ca.crt", names::AUTH_DIR)));
        let has_certificate = match own {
            None => sidecar.has_certificate,
            Some(_) => context.client_certificate,
        };
        if has_certificate {
            env.push(var("LOCKKEEPER_TLS_CERT", format!("{}/tls.crt", names::AUTH_DIR)));
            env.push(var("LOCKKEEPER_TLS_KEY", format!("{}/tls.key", names::AUTH_DIR)));
        }
    }
    env
}

pub(crate) fn of_ensemble(context: &Context<'_>) -> EnvVar {
    var(ENSEMBLE, context.ensemble)
}

pub(crate) fn of_name(name: &str, context: &Context<'_>) -> EnvVar {
    let (root, namespace) = (&context.sidecar.root, context.namespace);
    var(LOCK, format!("{root}/locks/{namespace}/{name}"))
}

/// As the sidecar reads it.
fn word_of(format: LogFormat) -> &'static str {
    match format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    }
}

pub(crate) fn of_pod(pod: &Pod) -> Vec<EnvVar> {
    let grace = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds);
    let labels = pod.metadata.labels.as_ref();
    let revision = REVISION_LABELS.iter().find_map(|label| labels?.get(*label));
    let mut env = vec![
        field("LOCKKEEPER_POD_NAMESPACE", "metadata.namespace"),
        field("LOCKKEEPER_POD_NAME", "metadata.name"),
        field("LOCKKEEPER_POD_UID", "metadata.uid"),
        field("LOCKKEEPER_POD_NODE", "spec.nodeName"),
        field("LOCKKEEPER_POD_IP", "status.podIP"),
        var(
            "LOCKKEEPER_TERMINATION_GRACE",
            format!("{}s", grace.unwrap_or(TERMINATION_GRACE_SECONDS)),
        ),
    ];
    env.extend(revision.map(|revision| var("LOCKKEEPER_REVISION", revision)));
    env
}

/// A variable with a value. The kubelet expands `$(NAME)` in values.
pub(crate) fn var(name: &str, value: impl Display) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: Some(super::command::escape(&value.to_string())),
        value_from: None,
    }
}

fn field(name: &str, path: &str) -> EnvVar {
    EnvVar {
        name: name.to_owned(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                // As the API server would write it, so that a second pass finds nothing to change.
                api_version: Some("v1".to_owned()),
                field_path: path.to_owned(),
            }),
            ..EnvVarSource::default()
        }),
    }
}
