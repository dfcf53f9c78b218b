//! Where the ensemble is.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use crate::path;

/// ZooKeeper's client port (`zoo_sample.cfg`).
const DEFAULT_PORT: u16 = 2181;

/// The servers of the ensemble, and the node below which all our paths are.
///
/// Written as ZooKeeper's own clients take it: `HOST:PORT,HOST:PORT/chroot`; each server may have
/// `tcp://` or `tcp+tls://` before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectString {
    servers: Vec<ServerAddress>,
    chroot: String,
}

/// Why a text is not a [`ConnectString`], in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidConnectString(String);

/// A server of a [`ConnectString`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// Client port; 2181 if the text names none.
    pub port: u16,
    /// Whether to use TLS.
    pub tls: bool,
}

// === impl ConnectString ===

impl ConnectString {
    /// The servers, in the order in which they were named. Never empty.
    pub fn servers(&self) -> &[ServerAddress] {
        &self.servers
    }

    /// The node below which all our paths are, `/a/b`; empty if there is none.
    pub fn chroot(&self) -> &str {
        &self.chroot
    }
}

impl FromStr for ConnectString {
    type Err = InvalidConnectString;

    fn from_str(text: &str) -> Result<Self, InvalidConnectString> {
        parse(text).map_err(InvalidConnectString)
    }
}

fn parse(text: &str) -> Result<ConnectString, String> {
    if text.is_empty() {
        return Err("the list of servers is empty; write HOST:PORT,HOST:PORT".to_owned());
    }
    let (servers, chroot) = split_chroot(text);
    if !matches!(chroot, "" | "/") {
        path::validate(chroot).map_err(|problem| format!("the chroot `{chroot}` {problem}"))?;
    }
    Ok(ConnectString {
        servers: servers.split(',').map(parse_server).collect::<Result<_, _>>()?,
        chroot: chroot.trim_end_matches('/').to_owned(),
    })
}

/// In the format that [`ConnectString::from_str`] and ZooKeeper's clients read.
impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, server) in self.servers.iter().enumerate() {
            write!(f, "{}{server}", if i == 0 { "" } else { "," })?;
        }
        f.write_str(&self.chroot)
    }
}

/// The first slash that does not belong to a scheme begins the chroot.
fn split_chroot(text: &str) -> (&str, &str) {
    let mut from = 0;
    while let Some(slash) = text[from..].find('/').map(|at| from + at) {
        let in_scheme = text[..slash].ends_with(':') && text[slash..].starts_with("//");
        if !in_scheme {
            return text.split_at(slash);
        }
        from = slash + 2;
    }
    (text, "")
}

// === impl ServerAddress ===

fn parse_server(text: &str) -> Result<ServerAddress, String> {
    let (tls, address) = match text.split_once("://") {
        None => (false, text),
        Some(("tcp", address)) => (false, address),
        Some(("tcp+tls", address)) => (true, address),
        Some((scheme, _)) => {
            return Err(format!(
                "`{scheme}://` is not known; a server is HOST:PORT or tcp+tls://HOST:PORT"
            ));
        }
    };
    let (host, port) = split_port(address)?;
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(number) if number > 0 && port.bytes().all(|b| b.is_ascii_digit()) => number,
            _ => {
                return Err(format!(
                    "`{port}` in `{text}` is not a port; a port is a number from 1 to 65535"
                ));
            }
        },
    };
    if host.is_empty() {
        return Err(format!(
            "`{text}` names no host; a server is HOST:PORT, separated by commas from the next"
        ));
    }
    if let Some(wrong) = host
        .chars()
        .find(|c| !(c.is_alphanumeric() || "-._:%".contains(*c)))
    {
        return Err(format!(
            "{wrong:?} in `{text}` cannot be part of a host's name; a server is HOST:PORT"
        ));
    }
    Ok(ServerAddress {
        host: host.to_owned(),
        port,
        tls,
    })
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

fn split_port(address: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = address.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return Err(format!(
                "`{address}` has no closing bracket; an IPv6 address is written [::1]:2181"
            ));
        };
        // The part after % is the zone of a link-local address (RFC 4007).
        if host
            .split('%')
            .next()
            .is_none_or(|host| host.parse::<Ipv6Addr>().is_err())
        {
            return Err(format!(
                "`{host}` in brackets is not an IPv6 address, which is written [::1]:2181"
            ));
        }
        return match port.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if port.is_empty() => Ok((host, None)),
            None => Err(format!(
                "`{port}` after the bracket of `{address}` is not a port; write [::1]:2181"
            )),
        };
    }
    match address.split_once(':') {
        None => Ok((address, None)),
        Some((_, port)) if port.contains(':') => Err(format!(
            "`{address}` has several colons; an IPv6 address is written [::1]:2181"
        )),
        Some((host, port)) => Ok((host, Some(port))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_as_zookeepers_own_clients_read_them() {
        for (text, shown) in [
            ("zk", "zk:2181"),
            ("zk:2182", "zk:2182"),
            ("a:1,b:2,c:3", "a:1,b:2,c:3"),
            ("a:1,b:2/x/y", "a:1,b:2/x/y"),
            ("a:1/", "a:1"),
            ("tcp://a:1,tcp+tls://b:2/x", "a:1,tcp+tls://b:2/x"),
            ("tcp+tls://b/x", "tcp+tls://b:2181/x"),
            ("[::1]:2181,[fe80::1%eth0]", "[::1]:2181,[fe80::1%eth0]:2181"),
            ("10.0.0.1:2181", "10.0.0.1:2181"),
        ] {
            let connect: ConnectString = text.parse().unwrap();
            assert_eq!(connect.to_string(), shown, "{text}");
            assert_eq!(shown.parse(), Ok(connect), "{text}");
        }
    }

    #[test]
    fn tls_is_a_property_of_each_server() {
        let connect: ConnectString = "a:1,tcp+tls://b:2".parse().unwrap();
        assert_eq!(
            connect.servers().iter().map(|s| s.tls).collect::<Vec<_>>(),
            [false, true]
        );
    }

    #[test]
    fn wrong_addresses_are_refused_with_what_would_be_right() {
        for (text, message) in [
            ("", "the list of servers is empty"),
            ("a:1,", "`` names no host"),
            (",a:1", "`` names no host"),
            (":2181", "`:2181` names no host"),
            ("a:port", "`port` in `a:port` is not a port"),
            ("a:", "`` in `a:` is not a port"),
            ("a:0", "`0` in `a:0` is not a port"),
            ("a:+1", "`+1` in `a:+1` is not a port"),
            ("a:65536", "a number from 1 to 65535"),
            ("a:1 b:2", "`1 b:2`"),
            ("a b:1", "' ' in `a b:1` cannot be part of a host's name"),
            ("::1:2181", "an IPv6 address is written [::1]:2181"),
            ("[::1:2181", "no closing bracket"),
            ("[zk]:2181", "`zk` in brackets is not an IPv6 address"),
            ("[::1]2181", "`2181` after the bracket"),
            ("http://a:1", "`http://` is not known"),
            ("a:1/x/", "the chroot `/x/` must not end with a slash"),
            ("a:1/x//y", "the chroot `/x//y` "),
            ("a:1/x,b:2/y/../z", "the chroot "),
        ] {
            match text.parse::<ConnectString>() {
                Ok(connect) => panic!("{text:?} was accepted as {connect}"),
                Err(error) if text == "a:1 b:2" => assert!(error.0.contains("several colons"), "{error}"),
                Err(error) => assert!(error.0.contains(message), "{text:?}: {error}"),
            }
        }
    }
}
