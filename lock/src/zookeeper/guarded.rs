//! Servers that others have named: which addresses their names may lead to.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::ZooKeeper;
use super::address::ServerAddress;
use crate::ensemble::{EnsembleError, EnsembleResult};

/// Says why a server must not be asked at an address, if so.
type Objection = dyn Fn(&ServerAddress, IpAddr) -> Option<String> + Send + Sync;

/// Looks at the addresses behind a server's name before anything is sent there.
#[derive(Clone)]
pub struct AddressGuard(Arc<Objection>);

impl AddressGuard {
    /// One that asks `objection`, which reads on behind "leads to ADDRESS, ".
    pub fn new(objection: impl Fn(&ServerAddress, IpAddr) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(objection))
    }
}

impl fmt::Debug for AddressGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AddressGuard")
    }
}

impl ZooKeeper {
    /// The server to connect to: its address in place of its name, so that the name cannot lead elsewhere between
    /// the look and the connection. With TLS the name stays, since the certificate is checked against it; nothing but the
    /// handshake is sent to a server without such a certificate.
    pub(super) async fn guarded(&self, server: &ServerAddress) -> EnsembleResult<ServerAddress> {
        let Some(AddressGuard(objection)) = &self.guard else {
            return Ok(server.clone());
        };
        let unreachable = |reason: String| EnsembleError::Unreachable {
            server: server.to_string(),
            reason,
        };
        let found = tokio::net::lookup_host((server.host.as_str(), server.port)).await;
        let found = found.map_err(|error| unreachable(error.to_string()))?;
        let found: Vec<_> = found.map(|address| address.ip()).collect();
        for address in &found {
            if let Some(why) = objection(server, *address) {
                return Err(unreachable(format!("leads to {address}, {why}")));
            }
        }
        // Another one the next time, if this one does not answer.
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
