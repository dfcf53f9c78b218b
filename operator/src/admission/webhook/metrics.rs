//! What is counted of the webhooks.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

use crate::admission::certificates::Validity;

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
    /// `wrap`, `signal`, `copied`, `unchanged`, or the reason of a refusal.
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

    pub fn record(&self, webhook: &'static str, result: &'static str, took: Duration) {
        self.requests.get_or_create(&Request { webhook, result }).inc();
        self.duration.observe(took.as_secs_f64());
    }
}
