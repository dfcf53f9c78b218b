//! The admission webhooks: pods are put behind their locks ([`crate::inject`]), and workloads pass their
//! keys on to their pods ([`workloads`]).

use std::sync::Arc;

use kube::Client;
use kube::runtime::reflector::{ObjectRef, Store};
use lockkeeper_crds::DistributedLock;
use lockkeeper_lock::BootInstant;
use tokio::sync::watch;

use crate::image::Images;
use crate::inject::{ClusterFacts, Context, Mode, Refusal, SidecarConfig, Subject, image_question, inject};

pub mod args;
mod cache;
pub mod facts;
mod lookups;
pub mod metrics;
pub mod review;
pub mod run;
pub mod server;
pub mod workloads;

pub(crate) use cache::Cache;
use lookups::Lookups;
use metrics::WebhookMetrics;
use review::{Decision, Denial};

/// Decides on objects.
pub struct Admission {
    /// Where owners, Secrets and autoscalers are looked up.
    pub client: Client,
    /// The locks of the cluster.
    pub locks: Store<DistributedLock>,
    /// What the cluster can do.
    pub facts: watch::Receiver<ClusterFacts>,
    /// What all sidecars have in common.
    pub sidecar: SidecarConfig,
    /// Where commands of images are looked up.
    pub images: Images,
    /// What is counted.
    pub metrics: WebhookMetrics,
    lookups: Lookups,
}

impl Admission {
    /// With nothing looked up yet.
    pub fn new(
        client: Client,
        locks: Store<DistributedLock>,
        facts: watch::Receiver<ClusterFacts>,
        sidecar: SidecarConfig,
        images: Images,
        metrics: WebhookMetrics,
    ) -> Self {
        Self {
            client,
            locks,
            facts,
            sidecar,
            images,
            metrics,
            lookups: Lookups::default(),
        }
    }

    /// Answers the review of a pod.
    ///
    /// # Errors
    /// When `body` is no review.
    pub async fn pod(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let begun = BootInstant::now();
        let request = review::parse(body)?;
        let decision = self.decide_pod(&request).await;
        let (result, decision) = match decision {
            Ok((result, decision)) => (result, Ok(decision)),
            Err(refusal) => (refusal.reason(), Err(Denial::from(refusal))),
        };
        let name = request.object["metadata"]["name"]
            .as_str()
            .or(request.object["metadata"]["generateName"].as_str());
        let took = BootInstant::now().saturating_since(begun);
        match &decision {
            Ok(_) => tracing::debug!(request.namespace, pod = name, result, ?took, "Reviewed a pod"),
            Err(denial) => {
                tracing::warn!(
                    request.namespace,
                    pod = name,
                    result,
                    why = denial.sentence,
                    "Refused a pod"
                );
            }
        }
        self.metrics.record("pods", result, took);
        Ok(review::answer(&request, decision))
    }

    /// Answers the review of a workload.
    ///
    /// # Errors
    /// When `body` is no review.
    pub async fn workload(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let begun = BootInstant::now();
        let request = review::parse(body)?;
        let (result, decision) = match self.decide_workload(&request).await {
            Ok(decision) if decision.object.is_some() => ("copied", Ok(decision)),
            Ok(decision) => ("unchanged", Ok(decision)),
            Err(refusal) => (refusal.reason(), Err(Denial::from(refusal))),
        };
        self.metrics
            .record("workloads", result, BootInstant::now().saturating_since(begun));
        Ok(review::answer(&request, decision))
    }

    async fn decide_pod(&self, request: &review::Request) -> Result<(&'static str, Decision), Refusal> {
        let (pod, namespace) = (&request.object, request.namespace.as_str());
        let subject = Subject::read(pod)?;
        let question = image_question(&subject)?;
        let lock = self.lock_of(pod, namespace);
        let lock = lock.as_ref().map(|lock| &lock.spec);
        let (replicas, client_certificate, image) = tokio::join!(
            self.lookups.replicas(&self.client, namespace, pod),
            self.lookups.client_certificate(&self.client, namespace, lock),
            async {
                match &question {
                    Some(question) => self.images.config(&self.client, namespace, pod, question).await,
                    None => Err("it was not looked up".to_owned()),
                }
            },
        );
        let cluster = *self.facts.borrow();
        let context = Context {
            cluster: &cluster,
            sidecar: &self.sidecar,
            namespace,
            lock,
            replicas,
            image: image.as_ref().map_err(String::as_str),
            client_certificate,
        };
        Ok(match inject(&subject, &context)? {
            None => ("unchanged", Decision::default()),
            Some(injection) => {
                let result = match injection.mode {
                    Mode::Wrap => "wrap",
                    Mode::Signal => "signal",
                };
                (
                    result,
                    Decision {
                        object: Some(injection.pod),
                        warnings: injection.warnings,
                    },
                )
            }
        })
    }

    async fn decide_workload(&self, request: &review::Request) -> Result<Decision, Refusal> {
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
                for autoscaler in self
                    .lookups
                    .autoscalers(&self.client, namespace, kind, name)
                    .await
                {
                    copied.warnings.push(format!(
                        "HorizontalPodAutoscaler `{autoscaler}` scales this {kind}, whose pods wait for a lock: more \
                         replicas are more standbys and no more throughput, and idle standbys spoil its averages"
                    ));
                }
            }
        }
        Ok(Decision {
            object: copied.object,
            warnings: copied.warnings,
        })
    }

    fn lock_of(&self, pod: &serde_json::Value, namespace: &str) -> Option<Arc<DistributedLock>> {
        use lockkeeper_crds::keys::LOCK;
        let metadata = &pod["metadata"];
        let name = metadata["annotations"][LOCK]
            .as_str()
            .or(metadata["labels"][LOCK].as_str())?;
        self.locks.get(&ObjectRef::new(name).within(namespace))
    }
}

impl From<Refusal> for Denial {
    fn from(refusal: Refusal) -> Self {
        Self {
            reason: refusal.reason(),
            sentence: format!("Lockkeeper: {refusal}"),
        }
    }
}
