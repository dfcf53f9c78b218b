//! Which container of a pod is guarded.

use k8s_openapi::api::core::v1::{Container, Pod};

use super::refusal::Refusal;

/// kubectl's annotation of pods: the container that people mean when they name none. Istio's injector writes it, too.
pub(crate) const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// Names of containers that meshes and Dapr put into pods. Istio (`holdApplicationUntilProxyStarts`) and Linkerd
/// (`proxy.await`) put theirs before the application's, and may do so before our webhook is asked: API servers ask in
/// the order of the configurations' names.
const PROXIES: [&str; 5] = [
    "istio-proxy",
    "linkerd-proxy",
    "kuma-sidecar",
    "consul-dataplane",
    "daprd",
];

/// How the guarded container was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// By `lockkeeper.io/container` or kubectl's annotation, or because there is only one.
    Clearly,
    /// By none of these: it is the first of several.
    ByPlace,
}

/// The position of the guarded container among `containers`, their names. `named` is `lockkeeper.io/container`,
/// `default` kubectl's annotation, which counts if there is such a container.
///
/// # Errors
/// When there is no container with the name, or when it is a proxy beside others.
pub(crate) fn chosen(
    named: Option<&str>,
    default: Option<&str>,
    containers: &[&str],
) -> Result<(usize, Said), Refusal> {
    let at = |name: &str| containers.iter().position(|container| *container == name);
    let (position, said) = match (named, default.and_then(at)) {
        (Some(name), _) => (at(name), Said::Clearly),
        (None, Some(position)) => (Some(position), Said::Clearly),
        (None, None) => {
            let said = match containers.len() {
                0 | 1 => Said::Clearly,
                _ => Said::ByPlace,
            };
            ((!containers.is_empty()).then_some(0), said)
        }
    };
    let position = position.ok_or_else(|| Refusal::NoContainer {
        name: named.unwrap_or_default().to_owned(),
        containers: containers.join(", "),
    })?;
    let name = containers[position];
    // As the only container it is the application: a gateway of the mesh.
    if PROXIES.contains(&name) && containers.len() > 1 {
        let others = containers.iter().filter(|other| !PROXIES.contains(other));
        return Err(Refusal::Proxy {
            container: name.to_owned(),
            others: others.copied().collect::<Vec<_>>().join(", "),
        });
    }
    Ok((position, said))
}

/// Annotations by which a pod excludes ports from its proxy.
const LEFT_ALONE: [&str; 2] = [
    "traffic.sidecar.istio.io/excludeOutboundPorts",
    "config.linkerd.io/skip-outbound-ports",
];

/// The proxy beside a container that is guarded by signals, if the sidecar may wait for it: the kubelet starts the
/// proxy after the sidecar has the lock, and the sidecar may reach the ensemble only through the proxy.
pub(crate) fn proxy_in_the_way<'a>(pod: &Pod, containers: &'a [Container]) -> Option<&'a str> {
    let mut annotations = pod.metadata.annotations.iter().flatten();
    if annotations.any(|(key, _)| LEFT_ALONE.contains(&key.as_str())) {
        return None;
    }
    let mut names = containers.iter().map(|container| container.name.as_str());
    names.find(|name| PROXIES.contains(name))
}

/// The warning that a container was chosen by its place.
pub(crate) fn by_place(of: &str, container: &str) -> String {
    format!(
        "the {of} has several containers and no lockkeeper.io/container: `{container}` runs under the lock, and the \
         others run in every pod; write the name of the application's container into it"
    )
}
