//! The command line. Every flag has an environment variable.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::Parser;
use k8s_openapi::ByteString;
use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::log::LogArgs;
use lockkeeper_daemon::tls::{Tls, TlsArgs};
use lockkeeper_daemon::{accept, duration, version};
use lockkeeper_lock::zookeeper::{ConnectString, Credentials, ZooKeeper};
use lockkeeper_lock::{LockPath, Timing};

use crate::admission::args::WebhookArgs;
use crate::identity::Identity;
use crate::identity::namespace_secret::Certificates;
use crate::kubernetes::objects::{CA, CERTIFICATE, KEY};
use crate::lock_metrics::DEFAULT_LIMIT;
use crate::zookeeper::allowed_hosts::{Host, Hosts};

/// Time for a write that was begun under the lease of the leader: what is left of the session timeout
/// has to have room for it, as for the stopping of an application.
const WRITE: Duration = Duration::from_secs(1);

/// What `--version` tells.
static VERSION: LazyLock<String> = LazyLock::new(|| version::long(env!("CARGO_PKG_VERSION"), &[]));

/// The operator of Lockkeeper: maintains locks, shows their queues, hands them over during rollouts
#[derive(Debug, Parser)]
#[command(name = "lockkeeper-operator", version, long_version = VERSION.as_str())]
pub struct OperatorArgs {
    /// The ensemble: HOST:PORT,… with an optional /chroot at the end; tcp+tls://HOST:PORT for TLS
    #[arg(long, env = "LOCKKEEPER_CONNECT", value_name = "HOSTS")]
    pub(crate) connect: ConnectString,

    /// Node below which the operator keeps everything of this cluster
    #[arg(
        long,
        env = "LOCKKEEPER_ROOT",
        value_name = "PATH",
        default_value = "/lockkeeper"
    )]
    pub(crate) root: LockPath,

    /// File with the operator's own identity: digest:USER:PASSWORD or USER:PASSWORD
    #[arg(long, env = "LOCKKEEPER_AUTH_FILE", value_name = "FILE")]
    pub(crate) auth_file: PathBuf,

    /// How to speak TLS with the ensemble
    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    /// Certificate (PEM) for guarded pods to show to the ensemble: the operator copies it into the Secret of each
    /// namespace. Do not use the operator's own certificate: pods would have its rights
    #[arg(
        long,
        env = "LOCKKEEPER_POD_TLS_CERT",
        value_name = "FILE",
        requires = "pod_tls_key",
        requires = "tls_ca"
    )]
    pub(crate) pod_tls_cert: Option<PathBuf>,

    /// Key (PEM) of the pods' certificate
    #[arg(
        long,
        env = "LOCKKEEPER_POD_TLS_KEY",
        value_name = "FILE",
        requires = "pod_tls_cert"
    )]
    pub(crate) pod_tls_key: Option<PathBuf>,

    /// Session timeout of the replicas at the ensemble. If the leader is silent for the lease duration that follows from it
    /// (8.5 s with 15s), the next replica becomes the leader. Default: 15s, or five ticks if they are longer
    #[arg(long, env = "LOCKKEEPER_SESSION_TIMEOUT", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) session_timeout: Option<Duration>,

    /// The ensemble's tickTime
    #[arg(long, env = "LOCKKEEPER_TICK_TIME", value_name = "DURATION", default_value = "2s", value_parser = duration::parse)]
    pub(crate) tick_time: Duration,

    /// Hosts of other ensembles that locks may name in place of this one: HOST, HOST:PORT or *.DOMAIN:PORT, separated by
    /// commas. The port is 2181 if none is given. Default: none
    #[arg(
        long,
        env = "LOCKKEEPER_OTHER_ENSEMBLES",
        value_name = "HOSTS",
        value_delimiter = ','
    )]
    pub(crate) other_ensembles: Vec<Host>,

    /// Most sessions with other ensembles at once. One namespace gets half of them at most. Each may take 24 MiB
    #[arg(
        long,
        env = "LOCKKEEPER_OTHER_ENSEMBLES_SESSIONS",
        value_name = "N",
        default_value = "4",
        value_parser = clap::value_parser!(u16).range(1..=256)
    )]
    pub(crate) other_ensembles_sessions: u16,

    /// Trust the taint node.kubernetes.io/out-of-service: remove the contenders of silent nodes with this taint at once. Set
    /// this only if nothing sets the taint before the machine is powered off
    #[arg(long, env = "LOCKKEEPER_TRUST_OUT_OF_SERVICE_TAINT")]
    pub(crate) trust_out_of_service_taint: bool,

    /// Number of locks, the oldest first, whose holders, waiting contenders and readiness /metrics exports; 0: none
    #[arg(
        long,
        env = "LOCKKEEPER_LOCK_METRICS",
        value_name = "N",
        default_value_t = DEFAULT_LIMIT
    )]
    pub(crate) lock_metrics: u32,

    /// Address of /livez, /readyz and /metrics
    #[arg(
        long,
        env = "LOCKKEEPER_ADMIN_LISTEN",
        value_name = "IP:PORT",
        default_value = "[::]:9809",
        value_parser = accept::address
    )]
    pub(crate) admin_listen: SocketAddr,

    #[command(flatten)]
    pub(crate) webhook: WebhookArgs,

    /// What is logged, and how
    #[command(flatten)]
    pub log: LogArgs,
}

/// The arguments, checked against each other and against the files that they name.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) zookeeper: ZooKeeper,
    /// The operator's identity there.
    pub(crate) identity: Identity,
    /// The node below which everything is, without the chroot.
    pub(crate) root: String,
    /// Times of the leaders' lock.
    pub(crate) timing: Timing,
    /// Hosts that locks may name.
    pub(crate) other_ensembles: Hosts,
    /// How many of the ensembles there may be followed at once.
    pub(crate) other_ensembles_sessions: usize,
    /// Whether a node with the taint out-of-service is known to be off.
    pub(crate) trust_out_of_service_taint: bool,
    /// Of how many locks the metrics tell.
    pub(crate) lock_metrics: u32,
    /// Where to answer probes.
    pub(crate) admin_listen: SocketAddr,
    pub(crate) webhook: WebhookArgs,
    /// What pods need to reach the ensemble over TLS.
    pub(crate) certificates: Certificates,
}

// === impl OperatorArgs ===

impl OperatorArgs {
    /// Reads the files, and checks what can be checked without the ensemble.
    ///
    /// # Errors
    /// What is wrong, and which flag or file it is.
    pub fn settings(self) -> Result<Settings, Failure> {
        let Self {
            connect,
            root,
            auth_file,
            tls,
            pod_tls_cert,
            pod_tls_key,
            session_timeout,
            tick_time,
            other_ensembles,
            other_ensembles_sessions,
            trust_out_of_service_taint,
            lock_metrics,
            admin_listen,
            webhook,
            log: _,
        } = self;
        let session_timeout =
            session_timeout.unwrap_or_else(|| DistributedLockSpec::for_tick(tick_time).session_timeout.get());
        let timing = Timing {
            tick_time,
            stop_grace: WRITE,
            ..Timing::new(session_timeout)
        };
        timing
            .check()
            .map_err(|error| Failure::usage(format!("--session-timeout: {error}")))?;
        let file = auth_file.display();
        let content = std::fs::read_to_string(&auth_file)
            .map_err(|error| Failure::usage(format!("cannot read --auth-file {file}: {error}")))?;
        let identity = Identity::parse(&content)
            .map_err(|error| Failure::usage(format!("--auth-file {file} {error}")))?;
        let tls = tls.read()?;
        let of_pods = Tls::read(None, pod_tls_cert.as_deref(), pod_tls_key.as_deref())?;
        let certificates = certificates(tls.ca.as_ref(), of_pods);
        let wants_tls = connect.servers().iter().any(|server| server.tls);
        let zookeeper = ZooKeeper::new(connect, session_timeout)
            .with_credentials(Credentials::Digest(identity.digest_auth()));
        if wants_tls && tls.ca.is_none() {
            return Err(Failure::usage(
                "--connect names a server with tcp+tls://: name the authorities to trust with --tls-ca",
            ));
        }
        let zookeeper = tls.apply(zookeeper)?;
        Ok(Settings {
            zookeeper,
            identity,
            root: root.to_string(),
            timing,
            other_ensembles: Hosts::new(other_ensembles),
            other_ensembles_sessions: other_ensembles_sessions.into(),
            trust_out_of_service_taint,
            lock_metrics,
            admin_listen,
            webhook,
            certificates,
        })
    }
}

/// As in the Secret of each namespace.
fn certificates(ca: Option<&String>, of_pods: Tls) -> Certificates {
    let own = of_pods.identity;
    let own = own.map(|own| [(CERTIFICATE, own.certificate), (KEY, own.key)]);
    let ca = ca.map(|ca| (CA, ca.clone()));
    ca.into_iter()
        .chain(own.into_iter().flatten())
        .map(|(key, pem)| (key.to_owned(), ByteString(pem.into_bytes())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &[&str], auth: &str) -> Result<Settings, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("auth");
        std::fs::write(&file, auth).unwrap();
        let base = ["lockkeeper-operator", "--auth-file", file.to_str().unwrap()];
        let all = base.iter().chain(arguments);
        let args = OperatorArgs::try_parse_from(all).map_err(|error| error.to_string())?;
        args.settings().map_err(|failure| failure.sentence)
    }

    #[test]
    fn servers_and_an_identity_are_all_that_is_needed() {
        let settings = settings(&["--connect", "zk:2181"], "digest:operator:secret\n").unwrap();
        assert_eq!(settings.root, "/lockkeeper");
        assert_eq!(settings.identity.digest_auth(), "operator:secret");
    }

    #[test]
    fn a_replica_that_leads_and_falls_silent_is_followed_before_its_session_ends() {
        let settings = settings(&["--connect", "zk:2181"], "u:secret").unwrap();
        assert_eq!(settings.timing.lease(), Some(Duration::from_millis(8_500)));
    }

    #[test]
    fn with_any_tick_that_a_lock_may_state_the_replicas_choose_their_leader() {
        for (tick, expected) in [("100ms", 15), ("3s", 15), ("4s", 20), ("8s", 40), ("1m", 300)] {
            let settings = settings(&["--connect", "zk:2181", "--tick-time", tick], "u:secret").unwrap();
            assert_eq!(
                settings.timing.session_timeout,
                Duration::from_secs(expected),
                "{tick}"
            );
        }
    }

    #[test]
    fn what_pods_need_for_tls_is_theirs_and_never_the_operators_own_certificate() {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let files = tempfile::tempdir().unwrap();
        let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
        for who in ["operator", "pods"] {
            let issued = rcgen::generate_simple_self_signed([who.to_owned()]).unwrap();
            std::fs::write(path(&format!("{who}.pem")), issued.cert.pem()).unwrap();
            std::fs::write(path(&format!("{who}.key")), issued.signing_key.serialize_pem()).unwrap();
        }
        let [ca, key, pods, pods_key] = ["operator.pem", "operator.key", "pods.pem", "pods.key"].map(path);
        let mut arguments = vec!["--connect", "tcp+tls://zk:2281", "--tls-ca", &ca];
        arguments.extend(["--tls-cert", &ca, "--tls-key", &key]);
        let keys = |arguments: &[&str]| {
            let certificates = settings(arguments, "u:secret").unwrap().certificates;
            certificates.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(keys(&arguments), ["ca.crt"]);
        arguments.extend(["--pod-tls-cert", &pods]);
        let refusal = settings(&arguments, "u:secret").unwrap_err();
        assert!(refusal.contains("--pod-tls-key"), "{refusal}");
        arguments.extend(["--pod-tls-key", &pods_key]);
        assert_eq!(keys(&arguments), ["ca.crt", "tls.crt", "tls.key"]);
        let certificates = settings(&arguments, "u:secret").unwrap().certificates;
        assert_eq!(certificates["tls.key"].0, std::fs::read(&pods_key).unwrap());
    }

    #[test]
    fn what_is_wrong_is_said_with_the_flag_and_without_the_secret() {
        for (arguments, auth, expected) in [
            (vec!["--connect", "zk:2181"], "secret", "--auth-file"),
            (
                vec!["--connect", "zk:2181"],
                "u:secret\nv:w",
                "must hold one line",
            ),
            (
                vec!["--connect", "tcp+tls://zk:2281"],
                "u:secret",
                "trust with --tls-ca",
            ),
            (
                vec!["--connect", "zk:2181", "--session-timeout", "2s"],
                "u:secret",
                "--session-timeout:",
            ),
            (
                vec!["--connect", "zk:2181", "--root", "locks"],
                "u:secret",
                "must begin with a slash",
            ),
            (
                vec!["--connect", "zk:2181", "--other-ensembles", "zk-0.team,*.team"],
                "u:secret",
                "`*.team` is no host: write it as in",
            ),
        ] {
            let sentence = settings(&arguments, auth).unwrap_err();
            assert!(sentence.contains(expected), "{arguments:?}: {sentence}");
            assert!(!sentence.contains("secret"), "{sentence}");
        }
    }
}
