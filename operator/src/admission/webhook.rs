//! The answers of the webhooks: a review of a pod puts it behind its lock ([`crate::admission::inject`]), and one of a
//! workload passes its keys on to its pods ([`workloads`]).

use std::sync::Arc;

use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::places::Source;
use tokio::sync::watch;

use crate::admission::app_token;
use crate::admission::asker::Asker;
use crate::admission::image::Images;
use crate::admission::inject::{
    ClusterFacts, Context, ImageConfig, ImageQuestion, ImageUnknown, Refusal, SidecarConfig, Subject,
    image_question, inject,
};

pub mod ensembles;
pub(crate) mod facts;
mod genuine;
pub mod lookups;
pub mod metrics;
pub(crate) mod nodes;
pub mod review;
mod sending;
pub mod server;
pub(crate) mod weight;
pub mod workloads;

use ensembles::Reached;
use lookups::Lookups;
use metrics::WebhookMetrics;
use nodes::Nodes;
use review::Decision;

use crate::kubernetes::names;

/// How much of what a client has written is logged, in bytes.
const LOGGED: usize = 300;

/// Decides on objects.
pub struct Admission {
    /// Where owners, Secrets and autoscalers are looked up.
    pub client: Client,
    pub locks: Store<DistributedLock>,
    /// Which ensembles this replica reaches.
    pub ensembles: Box<dyn Reached>,
    pub facts: watch::Receiver<ClusterFacts>,
    pub nodes: Arc<Nodes>,
    /// Whether binaries may come by image volumes.
    pub mounts_images: bool,
    pub sidecar: SidecarConfig,
    /// Where commands of images are looked up.
    pub images: Images,
    pub metrics: WebhookMetrics,
    /// What is asked of the API server.
    pub lookups: Lookups,
    /// Whether each caller has shown that it is an API server.
    pub are_callers_known: bool,
}

impl Admission {
    /// Answers the review of a pod, which came from `source`.
    ///
    /// # Errors
    /// When `body` is no review.
    pub(crate) async fn pod(&self, body: &[u8], source: Source) -> Result<Vec<u8>, String> {
        let request = review::parse(body)?;
        let review = self.metrics.begin("pods");
        let decision = self.decide_pod(&request, source).await;
        let (result, decision) = match decision {
            Ok((result, decision)) => (result, Ok(decision)),
            Err(refusal) => (refusal.reason(), Err(sentence(&refusal))),
        };
        let metadata = &request.object["metadata"];
        let name = metadata["name"].as_str().or(metadata["generateName"].as_str());
        // The API server asks before it has checked names, and any pod may ask here.
        let name = name.map(|name| names::beginning(name, LOGGED));
        let took = review.end(result);
        match &decision {
            Ok(_) => tracing::debug!(request.namespace, pod = name, result, ?took, "Reviewed a pod"),
            Err(sentence) => {
                tracing::warn!(
                    request.namespace,
                    pod = name,
                    result,
                    why = names::beginning(sentence, LOGGED),
                    "Refused a pod"
                );
            }
        }
        Ok(review::answer(&request, decision))
    }

    /// Answers the review of a workload, which came from `source`.
    ///
    /// # Errors
    /// When `body` is no review.
    pub(crate) async fn workload(&self, body: &[u8], source: Source) -> Result<Vec<u8>, String> {
        let request = review::parse(body)?;
        let review = self.metrics.begin("workloads");
        let (result, decision) = match self.decide_workload(&request, source).await {
            Ok(decision) if decision.object.is_some() => ("copied", Ok(decision)),
            Ok(decision) => ("unchanged", Ok(decision)),
            Err(refusal) => (refusal.reason(), Err(sentence(&refusal))),
        };
        review.end(result);
        Ok(review::answer(&request, decision))
    }

    async fn decide_pod(
        &self,
        request: &review::Request,
        source: Source,
    ) -> Result<(&'static str, Decision), Refusal> {
        let (pod, namespace) = (&request.object, request.namespace.as_str());
        let asker = self.asker(namespace, source);
        let subject = Subject::read(pod)?;
        let question = image_question(&subject)?;
        let Some(name) = subject.lock() else {
            return Ok(("unchanged", Decision::default()));
        };
        let lock = match self.locks.get(&ObjectRef::new(name).within(namespace)) {
            Some(lock) => Some(lock),
            // A user may have created it a moment ago, together with its pods.
            None => self
                .lookups
                .lock(&self.client, &asker, name)
                .await
                .map_err(|problem| Refusal::LockUnknown {
                    lock: name.to_owned(),
                    problem,
                })?
                .map(Arc::new),
        };
        let asked = ensembles::id_for(&*self.ensembles, name, lock.as_deref(), self.are_callers_known);
        let ensemble = asked.await?;
        let lock = lock.as_ref().map(|lock| &lock.spec);
        let (replicas, client_certificate, image) = tokio::join!(
            self.lookups.replicas(&self.client, &asker, pod),
            self.lookups.client_certificate(&self.client, &asker, lock),
            async {
                match &question {
                    Some(question) => self.config(&asker, pod, question).await,
                    None => Err(ImageUnknown::NotAsked),
                }
            },
        );
        let client_certificate = client_certificate.map_err(|problem| Refusal::LockUnknown {
            lock: name.to_owned(),
            problem,
        })?;
        let mut cluster = *self.facts.borrow();
        cluster.image_volumes &= self.mounts_images && self.nodes.mount_images();
        let ungated = subject
            .spec()
            .and_then(|spec| self.nodes.without_gate(spec, self.are_callers_known));
        let app_token = app_token::draw_token();
        let context = Context {
            cluster: &cluster,
            sidecar: &self.sidecar,
            namespace,
            lock,
            ensemble: &ensemble,
            ungated: ungated.as_deref(),
            replicas,
            image: image.as_ref(),
            client_certificate,
            app_token: &app_token,
        };
        Ok(match inject(&subject, &context)? {
            None => ("unchanged", Decision::default()),
            Some(injection) => (
                injection.mode.as_str(),
                Decision {
                    object: Some(injection.pod),
                    warnings: injection.warnings,
                },
            ),
        })
    }

    /// The configuration of a pod's image. The pull secrets of the pod are used only if the answer goes to the
    /// creators of the pod alone.
    async fn config(
        &self,
        asker: &Asker,
        pod: &serde_json::Value,
        question: &ImageQuestion,
    ) -> Result<ImageConfig, ImageUnknown> {
        let has_secrets = pod["spec"]["imagePullSecrets"]
            .as_array()
            .is_some_and(|list| !list.is_empty());
        let may_use_them = !has_secrets
            || self.are_callers_known
            || self
                .lookups
                .is_of_a_workload(&self.client, asker, pod, &question.image)
                .await;
        let asked = self
            .images
            .config(&self.client, asker, pod, question, may_use_them);
        asked.await.map_err(|unknown| match unknown {
            // What the registry says to others is no fact about this pod, so no mode of guarding follows from it.
            ImageUnknown::Passing(problem) | ImageUnknown::Lasting(problem) if !may_use_them => {
                ImageUnknown::Passing(format!(
                    "{problem}; the pod's pull secrets were not used, since it is not as a ReplicaSet, StatefulSet, \
                     DaemonSet or Job describes it, and the operator does not know its callers (--client-ca)"
                ))
            }
            unknown => unknown,
        })
    }

    fn asker(&self, namespace: &str, source: Source) -> Asker {
        Asker::new(namespace, (!self.are_callers_known).then_some(source))
    }

    /// What is to be said of the autoscalers of a workload. A client that forges a review does not learn their names.
    fn of_autoscalers(&self, kind: &str, names: &[String]) -> Vec<String> {
        let warn = |autoscaler: &str| {
            format!(
                "{autoscaler} scales this {kind}, whose pods wait for a lock: more replicas are more standbys and no more \
                 throughput, and idle standbys spoil its averages"
            )
        };
        match names {
            [] => Vec::new(),
            _ if !self.are_callers_known => vec![warn("a HorizontalPodAutoscaler")],
            names => {
                let named = names
                    .iter()
                    .map(|name| format!("HorizontalPodAutoscaler `{name}`"));
                named.map(|named| warn(&named)).collect()
            }
        }
    }

    async fn decide_workload(&self, request: &review::Request, source: Source) -> Result<Decision, Refusal> {
        let (kind, namespace) = (request.kind.kind.as_str(), request.namespace.as_str());
        let mut copied = workloads::copy(kind, &request.object, request.operation == "CREATE")?;
        if let Some(wish) = &copied.request {
            let object = copied.object.as_ref().unwrap_or(&request.object);
            let lock = self.locks.get(&ObjectRef::new(&wish.lock).within(namespace));
            let lock = lock.as_ref().map(|lock| &lock.spec);
            let has_ensemble = self.sidecar.connect.is_some();
            copied
                .warnings
                .extend(workloads::advise(kind, object, wish, lock, has_ensemble));
            if let Some(name) = request.object["metadata"]["name"].as_str() {
                let asker = self.asker(namespace, source);
                let found = self.lookups.autoscalers(&self.client, &asker, kind, name);
                copied.warnings.extend(self.of_autoscalers(kind, &found.await));
            }
        }
        Ok(Decision {
            object: copied.object,
            warnings: copied.warnings,
        })
    }
}

/// What the user of a refused object reads.
fn sentence(refusal: &Refusal) -> String {
    format!("Lockkeeper: {refusal}")
}
