//! What is counted of the webhooks.

use std::time::Duration;

use lockkeeper_lock::BootInstant;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::admission::certificates::Validity;
use crate::admission::inject::Refusal;

/// Metrics of the webhooks. Cheap to clone.
#[derive(Clone, Debug)]
pub struct WebhookMetrics {
    requests: Family<Request, Counter>,
    duration: Histogram,
    /// Of the certificate that is served.
    pub(crate) certificate: Validity,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    /// `pods` or `workloads`.
    webhook: &'static str,
    /// `wrap`, `signal`, `copied`, `unchanged`, [`ABANDONED`], or the reason of a refusal.
    result: &'static str,
}

/// The API server has hung up, since the review took longer than the webhook's timeout; or we have given it up.
const ABANDONED: &str = "abandoned";

/// A review under way. It is counted when this is dropped.
#[derive(Debug)]
pub struct Review<'a> {
    metrics: &'a WebhookMetrics,
    webhook: &'static str,
    begun: BootInstant,
    result: &'static str,
}

impl WebhookMetrics {
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            // From half a millisecond to four seconds: with a look-up in a registry, three at most.
            duration: Histogram::new(exponential_buckets(0.0005, 2.0, 14)),
            certificate: Validity::default(),
        };
        // From 0 on, so that the first refusal is an increase.
        for result in Refusal::REASONS.iter().copied().chain([ABANDONED]) {
            let webhook = "pods";
            drop(metrics.requests.get_or_create(&Request { webhook, result }));
        }
        registry.register(
            "lockkeeper_webhook_requests",
            "Reviews of objects by how they ended",
            metrics.requests.clone(),
        );
        registry.register_with_unit(
            "lockkeeper_webhook_duration",
            "Time that reviews took",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register(
            "lockkeeper_webhook_certificate_not_before_timestamp_seconds",
            "From when on the certificate of the webhooks is valid, 0 while there is none",
            metrics.certificate.not_before.clone(),
        );
        registry.register(
            "lockkeeper_webhook_certificate_not_after_timestamp_seconds",
            "Until when the certificate of the webhooks is valid, 0 while there is none",
            metrics.certificate.not_after.clone(),
        );
        metrics
    }

    /// Counts a review from now on.
    pub fn begin(&self, webhook: &'static str) -> Review<'_> {
        Review {
            metrics: self,
            webhook,
            begun: BootInstant::now(),
            result: ABANDONED,
        }
    }
}

impl Review<'_> {
    /// How it has ended. Gives how long it took.
    pub fn end(mut self, result: &'static str) -> Duration {
        self.result = result;
        BootInstant::now().saturating_since(self.begun)
    }
}

impl Drop for Review<'_> {
    fn drop(&mut self) {
        let (webhook, result) = (self.webhook, self.result);
        let took = BootInstant::now().saturating_since(self.begun);
        self.metrics
            .requests
            .get_or_create(&Request { webhook, result })
            .inc();
        self.metrics.duration.observe(took.as_secs_f64());
    }
}
