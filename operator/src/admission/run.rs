//! Puts the parts of the webhooks together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use kube::runtime::reflector::Store;
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::accept;
use lockkeeper_daemon::exit::Failure;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::admission::args::{Binary, WebhookArgs};
use crate::admission::callers::Callers;
use crate::admission::certificates::{Served, follow_files, own};
use crate::admission::image::{Images, RegistryOptions};
use crate::admission::inject::{ClusterFacts, SidecarConfig};
use crate::admission::webhook::ensembles::Ensembles;
use crate::admission::webhook::lookups::Lookups;
use crate::admission::webhook::metrics::WebhookMetrics;
use crate::admission::webhook::{Admission, facts, server};
use crate::leadership::Leadership;
use crate::node_fencing::Fencing;

/// What the operator knows and the webhooks need.
pub(crate) struct Surroundings {
    pub(crate) client: Client,
    pub(crate) locks: Store<DistributedLock>,
    /// The ensembles that this replica reaches.
    pub(crate) ensembles: Ensembles,
    /// What is to be told of nodes, where machines may be known to be off.
    pub(crate) fencing: Option<Arc<Fencing>>,
    /// The proof that this replica leads: the leader rotates the certificate.
    pub(crate) leadership: Leadership,
    /// Tells when that changes.
    pub(crate) leading: watch::Receiver<bool>,
    /// Connect string of the operator's ensemble.
    pub(crate) connect: String,
    /// Whether the Secrets of the namespaces hold a certificate for pods to show to it.
    pub(crate) has_certificate: bool,
    /// `tickTime` of that ensemble.
    pub(crate) tick_time: Duration,
    /// Where locks are in it, below the chroot.
    pub(crate) root: String,
    /// The operator's identity in an ACL of the scheme `digest`: `USER:HASH`.
    pub(crate) acl_id: String,
    pub(crate) metrics: WebhookMetrics,
}

/// The webhooks, before they run.
pub(crate) struct Webhooks {
    listener: TcpListener,
    admission: Arc<Admission>,
    callers: Callers,
    served: Served,
    certificates: Certificates,
    fencing: Option<Arc<Fencing>>,
    facts: watch::Sender<ClusterFacts>,
    known: watch::Sender<bool>,
    namespace: String,
    ready: watch::Sender<bool>,
}

enum Certificates {
    Files(PathBuf),
    Own {
        place: own::Place,
        leadership: Leadership,
        leading: watch::Receiver<bool>,
    },
}

impl Webhooks {
    /// Listens, and reads what has to be read.
    ///
    /// # Errors
    /// When the address is taken or a file cannot be read.
    pub(crate) async fn bind(args: WebhookArgs, surroundings: Surroundings) -> Result<Self, Failure> {
        let WebhookArgs {
            webhook_listen,
            webhook_certificates,
            client_ca,
            client_names,
            webhook_secret,
            webhook_service,
            webhook_configuration,
            namespace,
            sidecar_image,
            sidecar_pull_policy,
            sidecar_resources,
            sidecar_log_format,
            binary,
            pod_connect,
            registry_timeout,
            registry_plain_http,
            registry_networks,
            registry_redirects,
            registry_ca,
        } = args;
        let Surroundings {
            client,
            locks,
            ensembles,
            fencing,
            leadership,
            leading,
            connect,
            has_certificate,
            tick_time,
            root,
            acl_id,
            metrics,
        } = surroundings;
        let listener = accept::listen(webhook_listen).map_err(|error| {
            Failure::unavailable(format!(
                "cannot listen on --webhook-listen {webhook_listen}: {error}"
            ))
        })?;
        let authorities = registry_ca
            .as_deref()
            .map(|path| file("registry-ca", path))
            .transpose()?;
        let callers = match client_ca {
            None => Callers::Anybody,
            Some(path) => {
                Callers::certified(&file("client-ca", &path)?, client_names).map_err(|problem| {
                    Failure::usage(format!("cannot use --client-ca {}: {problem}", path.display()))
                })?
            }
        };
        let sidecar = SidecarConfig {
            image: sidecar_image,
            pull_policy: sidecar_pull_policy,
            resources: sidecar_resources,
            connect: Some(pod_connect.map_or_else(|| connect.clone(), |pods| pods.to_string())),
            own_connect: connect,
            has_certificate,
            tick_time,
            root,
            log_format: sidecar_log_format,
            readers: vec![format!("digest:{acl_id}")],
        };
        let images = Images::new(RegistryOptions {
            timeout: registry_timeout,
            plain_http: registry_plain_http,
            authorities,
            networks: registry_networks,
            redirects: registry_redirects,
        })
        .map_err(|error| Failure::usage(format!("cannot use --registry-ca: {error}")))?;
        let certificates = match webhook_certificates {
            Some(folder) => Certificates::Files(folder),
            None => Certificates::Own {
                place: own::Place {
                    namespace: namespace.clone(),
                    secret: webhook_secret,
                    service: webhook_service,
                    configuration: webhook_configuration,
                },
                leadership,
                leading,
            },
        };
        let facts = watch::Sender::new(ClusterFacts::default());
        let served = Served::measured(metrics.certificate.clone());
        Ok(Self {
            listener,
            admission: Arc::new(Admission {
                client,
                locks,
                ensembles: Box::new(ensembles),
                facts: facts.subscribe(),
                nodes: Arc::default(),
                mounts_images: binary == Binary::Auto,
                sidecar,
                images,
                metrics,
                lookups: Lookups::default(),
                are_callers_known: callers.are_known(),
            }),
            callers,
            served,
            certificates,
            fencing,
            facts,
            known: watch::Sender::new(false),
            namespace,
            ready: watch::Sender::new(false),
        })
    }

    /// Whether a certificate is served.
    pub(crate) fn ready(&self) -> watch::Receiver<bool> {
        self.ready.subscribe()
    }

    pub(crate) fn knows_nodes(&self) -> watch::Receiver<bool> {
        self.admission.nodes.ready()
    }

    /// Whether the operator has found out what the cluster can do, or has tried once.
    pub(crate) fn knows(&self) -> watch::Receiver<bool> {
        self.known.subscribe()
    }

    /// Answers until `stop` is true and API servers have had time to learn it.
    ///
    /// # Errors
    /// When TLS cannot be had at all.
    pub(crate) async fn serve(self, stop: watch::Receiver<bool>) -> Result<(), Failure> {
        let Self {
            listener,
            admission,
            callers,
            served,
            certificates,
            fencing,
            facts,
            known,
            namespace,
            ready,
        } = self;
        let tls = served
            .server_config(&callers)
            .map_err(|error| Failure::software(format!("cannot prepare TLS for the webhooks: {error}")))?;
        let client = admission.client.clone();
        // They end with this set, which ends with the server.
        let mut tasks = JoinSet::new();
        let image = admission.sidecar.image.clone();
        tasks.spawn(facts::follow(client.clone(), namespace, image, facts, known));
        tasks.spawn({
            let (nodes, client) = (Arc::clone(&admission.nodes), client.clone());
            async move { nodes.follow(client, fencing).await }
        });
        match certificates {
            Certificates::Files(folder) => tasks.spawn(follow_files(folder, served, ready)),
            Certificates::Own {
                place,
                leadership,
                leading,
            } => tasks.spawn(own::follow(client, place, served, leadership, leading, ready)),
        };
        tokio::select! {
            () = server::serve(listener, tls, admission, stop) => Ok(()),
            Some(ended) = tasks.join_next() => {
                let why = ended.err().map_or_else(|| "it ended".to_owned(), |error| error.to_string());
                Err(Failure::software(format!("one of the webhooks' own tasks ended, which it never should: {why}")))
            }
        }
    }
}

fn file(option: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::usage(format!("cannot read --{option} {}: {error}", path.display())))
}
