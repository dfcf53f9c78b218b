//! Connect strings: `host:port,host:port/chroot`, as ZooKeeper's own clients write them, with
//! `tcp+tls://` before a server that speaks TLS.

use std::fmt;
use std::str::FromStr;

/// The port that ZooKeeper's clients assume.
const DEFAULT_PORT: u16 = 2181;

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Whether to speak TLS.
    pub tls: bool,
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tls {
            f.write_str("tcp+tls://")?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Servers and the path that stands for `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectString {
    servers: Vec<ServerAddress>,
    chroot: String,
}

/// Why a connect string cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a list of servers: {reason}; write host:port,host:port or host:port,host:port/chroot"
)]
pub struct InvalidConnectString {
    text: String,
    reason: String,
}

impl ConnectString {
    /// The servers, in the order in which they were named. Never empty.
    pub fn servers(&self) -> &[ServerAddress] {
        &self.servers
    }

    /// The chroot, `/a/b`, or nothing.
    pub fn chroot(&self) -> &str {
        &self.chroot
    }
}

impl FromStr for ConnectString {
    type Err = InvalidConnectString;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let invalid = |reason: String| InvalidConnectString {
            text: text.to_owned(),
            reason,
        };
        let servers_end = chroot_start(text).unwrap_or(text.len());
        let chroot = text[servers_end..].trim_end_matches('/').to_owned();
        if chroot.contains("//") {
            return Err(invalid(format!("the chroot {chroot:?} has an empty part")));
        }
        let servers = text[..servers_end]
            .split(',')
            .map(|server| parse_server(server.trim()).map_err(&invalid))
            .collect::<Result<_, _>>()?;
        Ok(Self { servers, chroot })
    }
}

/// Where the first slash is that does not belong to a scheme.
fn chroot_start(text: &str) -> Option<usize> {
    let last_server = text.rfind(',').map_or(0, |comma| comma + 1);
    let scheme = text[last_server..].find("://").map_or(0, |scheme| scheme + 3);
    text[last_server + scheme..]
        .find('/')
        .map(|slash| last_server + scheme + slash)
}

fn parse_server(text: &str) -> Result<ServerAddress, String> {
    let (tls, address) = match text.split_once("://") {
        None => (false, text),
        Some(("tcp", address)) => (false, address),
        Some(("tcp+tls", address)) => (true, address),
        Some((scheme, _)) => return Err(format!("{scheme}:// is neither tcp:// nor tcp+tls://")),
    };
    let (host, port) = match address.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest
                .split_once(']')
                .ok_or_else(|| format!("{address:?} lacks a ]"))?;
            (host, after.strip_prefix(':'))
        }
        None => match address.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        },
    };
    if host.is_empty() {
        return Err(if text.is_empty() {
            "a server is empty".into()
        } else {
            format!("{text:?} has no host")
        });
    }
    if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(format!("{host:?} is no host name"));
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port != 0)
            .ok_or_else(|| format!("{port:?} is no port"))?,
    };
    Ok(ServerAddress {
        host: host.to_owned(),
        port,
        tls,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connect_string_reads_as_zookeepers_own_clients_read_it() {
        let connect: ConnectString = "zk1,zk2:2182,tcp+tls://[::1]:2281/apps/lk".parse().unwrap();
        let servers: Vec<_> = connect.servers().iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["zk1:2181", "zk2:2182", "tcp+tls://[::1]:2281"]);
        assert_eq!(connect.chroot(), "/apps/lk");
        assert_eq!("zk1".parse::<ConnectString>().unwrap().chroot(), "");
        assert_eq!("tcp://zk1:1/".parse::<ConnectString>().unwrap().chroot(), "");
    }

    #[test]
    fn what_is_no_list_of_servers_is_refused_with_the_reason() {
        for (text, reason) in [
            ("", "a server is empty"),
            ("zk1,,zk2", "a server is empty"),
            (":2181", "has no host"),
            ("zk1:x", "\"x\" is no port"),
            ("zk1:0", "\"0\" is no port"),
            ("zk1:70000", "\"70000\" is no port"),
            ("http://zk1", "http:// is neither"),
            ("[::1:2181", "lacks a ]"),
            ("zk1 zk2", "is no host name"),
            ("zk1//a", "has an empty part"),
        ] {
            let message = text.parse::<ConnectString>().unwrap_err().to_string();
            assert!(message.contains(reason), "{text:?}: {message}");
            assert!(message.contains("write host:port"), "{message}");
        }
    }
}
