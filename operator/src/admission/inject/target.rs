//! A pod that is being injected.

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec};
use lockkeeper_crds::keys::LockRequest;

use super::context::Context;

/// A pod, what it asks for and what it gets.
pub(super) struct Target<'a> {
    pub(super) typed: &'a Pod,
    pub(super) spec: &'a PodSpec,
    pub(super) container: &'a Container,
    pub(super) request: &'a LockRequest,
    pub(super) lock: &'a lockkeeper_crds::DistributedLockSpec,
    pub(super) context: &'a Context<'a>,
}
