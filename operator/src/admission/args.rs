//! The command line of the webhooks. Doc comments are the help that users read.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::ResourceRequirements;
use lockkeeper_daemon::log::LogFormat;
use lockkeeper_daemon::{accept, duration};
use lockkeeper_lock::zookeeper::ConnectString;

use crate::addresses::Network;

/// Where large public registries keep their blobs: Docker Hub; GitHub; Google's two, and registry.k8s.io on
/// them; Amazon's two; Azure and Microsoft; Quay.
const REDIRECTS: &str = "production.cloudflare.docker.com,*.r2.cloudflarestorage.com,pkg-containers.githubusercontent.com,\
                         storage.googleapis.com,*.pkg.dev,*.amazonaws.com,*.cloudfront.net,*.blob.core.windows.net,\
                         *.data.mcr.microsoft.com,*.quay.io";

/// Admission webhooks and the sidecars that they inject.
#[derive(Clone, Debug, Args)]
pub(crate) struct WebhookArgs {
    /// Address of the webhooks (HTTPS)
    #[arg(
        long,
        env = "LOCKKEEPER_WEBHOOK_LISTEN",
        value_name = "IP:PORT",
        default_value = "[::]:9443",
        value_parser = accept::address
    )]
    pub(crate) webhook_listen: SocketAddr,

    /// Folder with tls.crt and tls.key for the webhooks. Default: the operator makes and rotates a certificate itself
    #[arg(long, env = "LOCKKEEPER_WEBHOOK_CERTIFICATES", value_name = "DIR")]
    pub(crate) webhook_certificates: Option<PathBuf>,

    /// Certificates (PEM) of authorities: only callers with a certificate by one of them may ask the webhooks.
    /// Default: every client may
    #[arg(
        long,
        env = "LOCKKEEPER_CLIENT_CA",
        value_name = "FILE",
        requires = "client_names"
    )]
    pub(crate) client_ca: Option<PathBuf>,

    /// Common names or DNS names of the certificates that API servers show, separated by commas
    #[arg(
        long,
        env = "LOCKKEEPER_CLIENT_NAMES",
        value_name = "NAMES",
        value_delimiter = ',',
        requires = "client_ca"
    )]
    pub(crate) client_names: Vec<String>,

    /// Secret for the certificate that the operator makes itself
    #[arg(
        long,
        env = "LOCKKEEPER_WEBHOOK_SECRET",
        value_name = "NAME",
        default_value = "lockkeeper-webhook"
    )]
    pub(crate) webhook_secret: String,

    /// Service that leads to the webhooks
    #[arg(
        long,
        env = "LOCKKEEPER_WEBHOOK_SERVICE",
        value_name = "NAME",
        default_value = "lockkeeper-webhook"
    )]
    pub(crate) webhook_service: String,

    /// MutatingWebhookConfiguration that has to trust that certificate
    #[arg(
        long,
        env = "LOCKKEEPER_WEBHOOK_CONFIGURATION",
        value_name = "NAME",
        default_value = "lockkeeper"
    )]
    pub(crate) webhook_configuration: String,

    /// Namespace of the operator
    #[arg(
        long,
        env = "LOCKKEEPER_NAMESPACE",
        value_name = "NAME",
        default_value = "lockkeeper"
    )]
    pub(crate) namespace: String,

    /// Image of the injected sidecar
    #[arg(
        long,
        env = "LOCKKEEPER_SIDECAR_IMAGE",
        value_name = "IMAGE",
        default_value = concat!("lockkeeper/lockkeeper:", env!("CARGO_PKG_VERSION"))
    )]
    pub(crate) sidecar_image: String,

    /// Pull policy of that image. Default: that of Kubernetes
    #[arg(long, env = "LOCKKEEPER_SIDECAR_PULL_POLICY", value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub(crate) sidecar_pull_policy: Option<String>,

    /// Requests and limits of the sidecar, as JSON. Not used for pods of the QoS class BestEffort. The sidecar always
    /// has a limit in pods of the class Guaranteed, and for each resource of which all containers of the pod have a
    /// limit: at least 100m CPU and 64Mi memory if none is given here. In pods of the class Guaranteed the requests equal the limits
    #[arg(
        long,
        env = "LOCKKEEPER_SIDECAR_RESOURCES",
        value_name = "JSON",
        value_parser = resources,
        default_value = r#"{"requests":{"cpu":"10m","memory":"16Mi"},"limits":{"memory":"64Mi"}}"#
    )]
    pub(crate) sidecar_resources: ResourceRequirements,

    /// How the sidecar writes a line of its log
    #[arg(
        long,
        env = "LOCKKEEPER_SIDECAR_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub(crate) sidecar_log_format: LogFormat,

    /// How a wrapped container gets the binary
    #[arg(long, env = "LOCKKEEPER_BINARY", value_name = "HOW", default_value = "auto")]
    pub(crate) binary: Binary,

    /// Connect string of the ensemble as pods see it. Default: --connect
    #[arg(long, env = "LOCKKEEPER_POD_CONNECT", value_name = "HOSTS")]
    pub(crate) pod_connect: Option<ConnectString>,

    /// How long the operator waits for registries to look up the command of an image. Other questions of the same review take
    /// up to 3 s more, and the webhook's timeoutSeconds has to contain both
    #[arg(long, env = "LOCKKEEPER_REGISTRY_TIMEOUT", value_name = "DURATION", default_value = "3s", value_parser = duration::parse)]
    pub(crate) registry_timeout: Duration,

    /// Registries that speak HTTP without TLS: HOST or HOST:PORT, separated by commas
    #[arg(
        long,
        env = "LOCKKEEPER_REGISTRY_PLAIN_HTTP",
        value_name = "HOSTS",
        value_delimiter = ','
    )]
    pub(crate) registry_plain_http: Vec<String>,

    /// Loopback or link-local networks in which registries are allowed: 127.0.0.1, 169.254.0.0/16; separated by
    /// commas
    #[arg(
        long,
        env = "LOCKKEEPER_REGISTRY_NETWORKS",
        value_name = "NETWORKS",
        value_delimiter = ','
    )]
    pub(crate) registry_networks: Vec<Network>,

    /// Hosts to which a registry may redirect for blobs: HOST or *.DOMAIN, with TLS, separated by commas
    #[arg(
        long,
        env = "LOCKKEEPER_REGISTRY_REDIRECTS",
        value_name = "HOSTS",
        value_delimiter = ',',
        default_value = REDIRECTS
    )]
    pub(crate) registry_redirects: Vec<String>,

    /// Certificates (PEM) of further authorities that sign registries' certificates; the system's stay trusted
    #[arg(long, env = "LOCKKEEPER_REGISTRY_CA", value_name = "FILE")]
    pub(crate) registry_ca: Option<PathBuf>,
}

/// How a wrapped container gets the binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Binary {
    /// By an image volume where the API server and all nodes have them; else by a copy.
    Auto,
    /// By an init container that copies it.
    Copy,
}

fn resources(json: &str) -> Result<ResourceRequirements, String> {
    serde_json::from_str(json).map_err(|error| {
        format!(
            "{error}; write it as in {{\"requests\":{{\"cpu\":\"10m\"}},\"limits\":{{\"memory\":\"64Mi\"}}}}"
        )
    })
}
