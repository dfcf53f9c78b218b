//! What a keeper needs to know about its pod: arguments of `sidecar`.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use lockkeeper_daemon::duration;
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::token::AppToken;
use lockkeeper_lock::{Identity, Pod};

use crate::probes::AppProbes;

/// The pod of a keeper. Its identity is given as a whole or not at all.
#[derive(Debug, Args)]
#[command(next_help_heading = "Pod")]
pub struct PodArgs {
    /// Namespace of this pod, shown in the queue
    #[arg(long, env = "LOCKKEEPER_POD_NAMESPACE", value_name = "NAME")]
    pub pod_namespace: Option<String>,

    /// Name of this pod
    #[arg(long, env = "LOCKKEEPER_POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,

    /// UID of this pod
    #[arg(long, env = "LOCKKEEPER_POD_UID", value_name = "UID")]
    pub pod_uid: Option<String>,

    /// Name of the node that this pod is on
    #[arg(long, env = "LOCKKEEPER_POD_NODE", value_name = "NAME")]
    pub pod_node: Option<String>,

    /// Revision of this pod's workload: its pod-template-hash or controller-revision-hash. Empty for none
    #[arg(long, env = "LOCKKEEPER_REVISION", value_name = "HASH")]
    pub revision: Option<String>,

    /// IP address of this pod, for the application's probes that name no host. Default: 127.0.0.1
    #[arg(long, env = "LOCKKEEPER_POD_IP", value_name = "IP")]
    pub pod_ip: Option<IpAddr>,

    /// The application's own probes and hooks, by kind, as JSON. The keeper answers them in the application's place
    #[arg(long, env = "LOCKKEEPER_APP_PROBES", value_name = "JSON")]
    pub app_probes: Option<String>,

    /// Secret token in the path of these probes and hooks, /app/TOKEN/KIND, so that only the kubelet can call them: 22 to 128
    /// random characters of A-Z, a-z, 0-9, - and _. Without a token the keeper sends no preStop hook
    // Checked later: clap would show a wrong one.
    #[arg(
        long,
        env = "LOCKKEEPER_APP_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true
    )]
    pub app_token: Option<String>,

    /// The pod's terminationGracePeriodSeconds: seconds, or with a unit
    #[arg(long, env = "LOCKKEEPER_TERMINATION_GRACE", value_name = "DURATION", default_value = "30s", value_parser = grace)]
    pub termination_grace: Duration,
}

/// A [`PodArgs`] that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// The probes to answer in the application's place; empty if it is not wrapped.
    pub app_probes: AppProbes,
    /// The token that the path of these has to hold.
    pub app_token: Option<AppToken>,
    /// How long the pod may take to end, from the first sign of it.
    pub termination_grace: Duration,
}

// === impl PodArgs ===

impl PodArgs {
    /// Our identity in the queue, and the settings. See [`LockArgs::check`](super::LockArgs::check).
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub(crate) fn check(self) -> Result<(Identity, PodSettings), Failure> {
        let Self {
            pod_namespace,
            pod_name,
            pod_uid,
            pod_node,
            revision,
            pod_ip,
            app_probes,
            app_token,
            termination_grace,
        } = self;
        let parts = [
            ("--pod-namespace", pod_namespace),
            ("--pod-name", pod_name),
            ("--pod-uid", pod_uid),
            ("--pod-node", pod_node),
        ];
        // A label that a pod does not have is empty in its environment.
        let revision = revision.filter(|revision| !revision.is_empty());
        let app_probes = AppProbes::parse(app_probes.as_deref(), pod_ip)
            .map_err(|problem| Failure::usage(format!("--app-probes {problem}")))?;
        let app_token = app_token
            .as_deref()
            .map(AppToken::parse)
            .transpose()
            .map_err(|problem| Failure::usage(format!("--app-token (LOCKKEEPER_APP_TOKEN) {problem}")))?;
        let identity = Identity {
            pod: pod(parts, revision.is_some())?,
            host: None,
            revision,
        };
        let settings = PodSettings {
            app_probes,
            app_token,
            termination_grace,
        };
        Ok((identity, settings))
    }
}

fn pod(parts: [(&str, Option<String>); 4], has_revision: bool) -> Result<Option<Pod>, Failure> {
    let missing: Vec<_> = parts
        .iter()
        .filter(|(_, value)| value.as_ref().is_none_or(String::is_empty))
        .map(|(flag, _)| *flag)
        .collect();
    let given = parts.iter().any(|(_, value)| value.is_some()) || has_revision;
    match (parts, missing.is_empty()) {
        (
            [
                (_, Some(namespace)),
                (_, Some(name)),
                (_, Some(uid)),
                (_, Some(node)),
            ],
            true,
        ) => Ok(Some(Pod {
            namespace,
            name,
            uid,
            node,
        })),
        _ if given => Err(Failure::usage(format!(
            "the pod's identity is incomplete: {} {} missing or empty. Give all of --pod-namespace, --pod-name, \
             --pod-uid and --pod-node; or none of them, and no --revision",
            missing.join(", "),
            if missing.len() == 1 { "is" } else { "are" },
        ))),
        _ => Ok(None),
    }
}

/// Kubernetes counts it in whole seconds.
fn grace(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) => Ok(Duration::from_secs(seconds)),
        Err(_) => duration::parse(text),
    }
}
