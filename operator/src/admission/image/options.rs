//! How registries are asked, and where they may lead.

use std::time::Duration;

use oci_spec::distribution::Reference;

use super::url::Url;
use crate::addresses::Network;

/// Where Docker's own registry answers; its name is one of a web site.
const DOCKER: &str = "registry-1.docker.io";

/// How registries are asked.
#[derive(Clone, Debug)]
pub struct RegistryOptions {
    /// For one image in all.
    pub timeout: Duration,
    /// Registries, HOST or HOST:PORT, that speak HTTP without TLS.
    pub plain_http: Vec<String>,
    /// Authorities (PEM) to trust beside those of the system.
    pub authorities: Option<Vec<u8>>,
    /// Where registries may be although nothing else is asked there: loopback, link-local.
    pub networks: Vec<Network>,
    /// Hosts beside its own to which a registry may lead for a blob: `HOST`, or `*.DOMAIN`.
    pub redirects: Vec<String>,
}

impl RegistryOptions {
    /// Where the registry of an image answers; `None` if its name cannot be one of a server.
    pub(super) fn home(&self, image: &Reference) -> Option<Url> {
        let host = match image.registry() {
            "docker.io" => DOCKER,
            other => other,
        };
        let is_plain = self.plain_http.iter().any(|plain| plain == host);
        Url::on(host, !is_plain, format!("/v2/{}/", image.repository()))
    }

    /// Whether a registry at `home` may lead to `url`.
    pub(super) fn may_lead(&self, home: &Url, url: &Url) -> bool {
        let covers = |pattern: &String| match pattern.strip_prefix('*') {
            Some(domain) => domain.starts_with('.') && url.host.ends_with(domain),
            None => *pattern == url.host,
        };
        home.is_beside(url) || (url.is_secure && url.port == 443 && self.redirects.iter().any(covers))
    }
}
