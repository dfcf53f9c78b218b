//! Limits on the addresses of servers that other users have named.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::address::ServerAddress;
use crate::ensemble::{EnsembleError, EnsembleResult};

/// Returns why an address of a server must not be used, or `None`.
type Objection = dyn Fn(&ServerAddress, IpAddr) -> Option<String> + Send + Sync;

/// Checks the addresses behind a server's name before anything is sent there.
#[derive(Clone)]
pub struct AddressGuard(Arc<Objection>);

impl AddressGuard {
    /// A guard that calls `objection`. The message puts its text after "leads to ADDRESS, ".
    pub fn new(objection: impl Fn(&ServerAddress, IpAddr) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(objection))
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressGuard")
    }
}

impl AddressGuard {
    /// The server to connect to: its address in place of its name, so the name cannot lead elsewhere between the check
    /// and the connection. With TLS the name stays, since the certificate is checked against it: a server without such
    /// a certificate receives only the handshake.
    pub(super) async fn resolve(&self, server: &ServerAddress) -> EnsembleResult<ServerAddress> {
        let unreachable = |reason: String| EnsembleError::Unreachable {
            server: server.to_string(),
            reason,
        };
        let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
        let found = found.map_err(|error| unreachable(error.to_string()))?;
        let found: Vec<_> = found.map(|address| address.ip()).collect();
        for address in &found {
            if let Some(why) = (self.0)(server, *address) {
                return Err(unreachable(format!("leads to {address}, {why}")));
            }
        }
        // A random one: a retry may find another address that answers.
        let address =
            fastrand::choice(&found).ok_or_else(|| unreachable("leads to no address".to_owned()))?;
        let host = if server.tls {
            server.host.clone()
        } else {
            address.to_string()
        };
        Ok(ServerAddress {
            host,
            ..server.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::ZooKeeper;
    use std::time::Duration;

    async fn guarded(connect: &str) -> EnsembleResult<ServerAddress> {
        let guard =
            AddressGuard::new(|_, address| address.is_loopback().then(|| "a loopback address".to_owned()));
        let zookeeper = ZooKeeper::new(connect.parse().unwrap(), Duration::from_secs(4)).with_guard(guard);
        zookeeper.guarded(&zookeeper.connect.servers()[0]).await
    }

    #[tokio::test]
    async fn a_name_that_leads_to_a_refused_address_is_not_connected_to() {
        for connect in [
            "localhost:2181",
            "127.0.0.1:2181",
            "tcp+tls://localhost:2281",
            "[::1]:2181",
        ] {
            let refusal = guarded(connect).await.unwrap_err().to_string();
            assert!(refusal.contains(", a loopback address"), "{refusal}");
        }
        assert_eq!(
            guarded("10.0.0.7:2181").await.unwrap().to_string(),
            "10.0.0.7:2181"
        );
    }
}
