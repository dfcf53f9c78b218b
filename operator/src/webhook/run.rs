//! The parts of the webhooks, put together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::reflector::Store;
use lockkeeper_crds::DistributedLock;
use lockkeeper_sidecar::exit::Failure;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::args::{Binary, WebhookArgs};
use super::metrics::WebhookMetrics;
use super::{Admission, facts, server};
use crate::certificates::{Served, follow_files, own};
use crate::image::{Images, RegistryOptions};
use crate::inject::{ClusterFacts, SidecarConfig};

/// What the operator knows and the webhooks need.
pub struct Surroundings {
    /// The API server.
    pub client: Client,
    /// The locks of the cluster.
    pub locks: Store<DistributedLock>,
    /// Whether this replica leads: the leader makes the certificate.
    pub leading: watch::Receiver<bool>,
    /// Connect string of the operator's ensemble.
    pub connect: String,
    /// Whether the Secrets of the namespaces hold a certificate for pods to show to it.
    pub has_certificate: bool,
    /// `tickTime` of that ensemble.
    pub tick_time: Duration,
    /// Where locks are in it, below the chroot.
    pub root: String,
    /// The operator's identity in an ACL of the scheme `digest`: `USER:HASH`.
    pub acl_id: String,
    /// What is counted.
    pub metrics: WebhookMetrics,
}

/// The webhooks, before they run.
pub struct Webhooks {
    listener: TcpListener,
    admission: Arc<Admission>,
    served: Served,
    certificates: Certificates,
    facts: watch::Sender<ClusterFacts>,
    known: watch::Sender<bool>,
    namespace: String,
    wants_images: bool,
    leading: watch::Receiver<bool>,
    ready: watch::Sender<bool>,
}

enum Certificates {
    Files(PathBuf),
    Own(own::Place),
}

impl Webhooks {
    /// Listens, and reads what has to be read.
    ///
    /// # Errors
    /// When the address is taken or a file cannot be read.
    pub async fn bind(args: WebhookArgs, surroundings: Surroundings) -> Result<Self, Failure> {
        let WebhookArgs {
            webhook_listen,
            webhook_certificates,
            webhook_secret,
            webhook_service,
            webhook_configuration,
            namespace,
            sidecar_image,
            sidecar_pull_policy,
            sidecar_resources,
            binary,
            pod_connect,
            registry_timeout,
            registry_plain_http,
            registry_ca,
        } = args;
        let Surroundings {
            client,
            locks,
            leading,
            connect,
            has_certificate,
            tick_time,
            root,
            acl_id,
            metrics,
        } = surroundings;
        let listener = TcpListener::bind(webhook_listen).await.map_err(|error| {
            Failure::unavailable(format!(
                "cannot listen on --webhook-listen {webhook_listen}: {error}"
            ))
        })?;
        let authorities = registry_ca
            .map(|path| {
                std::fs::read(&path).map_err(|error| {
                    Failure::usage(format!("cannot read --registry-ca {}: {error}", path.display()))
                })
            })
            .transpose()?;
        let sidecar = SidecarConfig {
            image: sidecar_image,
            pull_policy: sidecar_pull_policy,
            resources: sidecar_resources,
            connect: Some(pod_connect.map_or_else(|| connect.clone(), |pods| pods.to_string())),
            own_connect: connect,
            has_certificate,
            tick_time,
            root,
            readers: vec![format!("digest:{acl_id}")],
        };
        let images = Images::new(RegistryOptions {
            timeout: registry_timeout,
            plain_http: registry_plain_http,
            authorities,
        });
        let certificates = match webhook_certificates {
            Some(folder) => Certificates::Files(folder),
            None => Certificates::Own(own::Place {
                namespace: namespace.clone(),
                secret: webhook_secret,
                service: webhook_service,
                configuration: webhook_configuration,
            }),
        };
        let facts = watch::Sender::new(ClusterFacts::default());
        Ok(Self {
            listener,
            admission: Arc::new(Admission::new(
                client,
                locks,
                facts.subscribe(),
                sidecar,
                images,
                metrics,
            )),
            served: Served::default(),
            certificates,
            facts,
            known: watch::Sender::new(false),
            namespace,
            wants_images: binary == Binary::Auto,
            leading,
            ready: watch::Sender::new(false),
        })
    }

    /// Whether a certificate is served.
    pub fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    /// Whether it was found out what the cluster can do, or tried.
    pub fn knows(&self) -> watch::Receiver<bool> {
        self.known.subscribe()
    }

    /// Answers until `stop` is true and everybody may have heard of it.
    ///
    /// # Errors
    /// When TLS cannot be had at all.
    pub async fn serve(self, stop: watch::Receiver<bool>) -> Result<(), Failure> {
        let Self {
            listener,
            admission,
            served,
            certificates,
            facts,
            known,
            namespace,
            wants_images,
            leading,
            ready,
        } = self;
        let tls = served
            .server_config()
            .map_err(|error| Failure::software(format!("cannot prepare TLS for the webhooks: {error}")))?;
        let client = admission.client.clone();
        // They end with this set, which ends with the server.
        let mut tasks = JoinSet::new();
        tasks.spawn(facts::follow(
            client.clone(),
            namespace,
            wants_images,
            facts,
            known,
        ));
        match certificates {
            Certificates::Files(folder) => tasks.spawn(follow_files(folder, served, ready)),
            Certificates::Own(place) => tasks.spawn(own::follow(client, place, served, leading, ready)),
        };
        tokio::select! {
            () = server::serve(listener, tls, admission, stop) => Ok(()),
            Some(ended) = tasks.join_next() => {
                let why = ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                Err(Failure::software(format!("a task of the webhooks is gone: {why}")))
            }
        }
    }
}
