//! Which hosts the operator may talk to because a lock names them. Pure.
//!
//! A user who may create a `DistributedLock` names servers; the operator connects to them, and shows them what is in
//! Secrets of the namespace. So the administrator lists the hosts that may be named, and the operator connects to no other.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::zookeeper::{AddressGuard, ConnectString, ServerAddress};

use crate::addresses::kind as forbidden;
use crate::problem::Problem;

/// One entry of the list: `HOST`, `HOST:PORT`, `*.DOMAIN` or `*.DOMAIN:PORT`. Without a port ZooKeeper's, 2181.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// In lower case. For a pattern it is the part after the `*`, with the dot.
    name: String,
    is_pattern: bool,
    port: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Hosts(Vec<Host>);

// === impl Host ===

impl Host {
    fn matches(&self, server: &ServerAddress) -> bool {
        let name = canonical(&server.host);
        let is_named = if self.is_pattern {
            // At least one letter before the dot. An address never matches: its last label is a number.
            name.len() > self.name.len() && name.ends_with(&self.name)
        } else {
            name == self.name
        };
        is_named && server.port == self.port
    }
}

impl FromStr for Host {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` is no host: write it as in zk-0.example.com, zk-0.example.com:2281, *.zk.example.com or [fd00::1]:2181"
            )
        };
        if text.contains(['/', ',']) {
            return Err(wrong());
        }
        let (is_pattern, rest) = match text.strip_prefix('*') {
            Some(rest) if rest.starts_with('.') => (true, &rest[1..]),
            Some(_) => return Err(wrong()),
            None => (false, text),
        };
        // The same parser as for the names of servers.
        let connect: ConnectString = rest.parse().map_err(|_| wrong())?;
        let server = &connect.servers()[0];
        let name = canonical(&server.host);
        // An address has no domains; and `*.com` would cover hosts of all owners.
        let is_domain = name.contains('.')
            && name
                .rsplit('.')
                .next()
                .is_some_and(|last| last.starts_with(|c: char| c.is_alphabetic()))
            && !name.starts_with('.');
        if name.is_empty() || is_pattern && (!is_domain || name.parse::<IpAddr>().is_ok()) {
            return Err(wrong());
        }
        Ok(Self {
            name: if is_pattern { format!(".{name}") } else { name },
            is_pattern,
            port: server.port,
        })
    }
}

// === impl Hosts ===

impl Hosts {
    pub(crate) fn new(hosts: Vec<Host>) -> Self {
        Self(hosts)
    }

    /// Whether all servers of a lock are on the list.
    ///
    /// # Errors
    /// The first server that is not on the list, and the setting to change.
    pub(crate) fn check(&self, connect: &ConnectString) -> Result<(), Problem> {
        let is_listed = |server: &&ServerAddress| self.0.iter().any(|host| host.matches(server));
        let Some(stranger) = connect.servers().iter().find(|server| !is_listed(server)) else {
            return Ok(());
        };
        let server = ServerAddress {
            tls: false,
            ..stranger.clone()
        };
        Err(Problem::new(
            Reason::EnsembleNotAllowed,
            format!(
                "spec.zookeeper.connect names {server}, and the operator talks only to hosts on the administrator's list: add \
                 {server} to zookeeper.otherEnsembles.hosts of its chart, or remove spec.zookeeper"
            ),
        ))
    }

    /// The servers that only a pattern allows: the owner of their domain could resolve them to any address.
    pub(crate) fn unnamed(&self, connect: &ConnectString) -> Vec<String> {
        let is_named = |server: &&ServerAddress| {
            let mut named = self.0.iter().filter(|host| !host.is_pattern);
            named.any(|host| host.matches(server))
        };
        let servers = connect.servers().iter().filter(|server| !is_named(server));
        servers.map(|server| server.host.clone()).collect()
    }
}

/// Refuses addresses of the operator's own machine and of metadata services for these hosts.
pub(crate) fn guard(unnamed: Vec<String>) -> AddressGuard {
    AddressGuard::new(move |server, address| {
        let kind = forbidden(address).filter(|_| unnamed.contains(&server.host))?;
        Some(format!(
            "{kind}, which a pattern in zookeeper.otherEnsembles.hosts does not cover: write the host itself on the list"
        ))
    })
}

/// As names are compared: in lower case, and without the dot at the end of a fully qualified one.
fn canonical(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let star = if self.is_pattern { "*" } else { "" };
        if self.name.contains(':') {
            write!(f, "[{}]:{}", self.name, self.port)
        } else {
            write!(f, "{star}{}:{}", self.name, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(list: &[&str]) -> Hosts {
        Hosts::new(list.iter().map(|host| host.parse().unwrap()).collect())
    }

    fn refusal(list: &[&str], connect: &str) -> Option<String> {
        let checked = hosts(list).check(&connect.parse().unwrap());
        checked.err().map(|problem| {
            assert_eq!(problem.reason, Reason::EnsembleNotAllowed);
            problem.message
        })
    }

    #[test]
    fn without_a_list_no_host_may_be_named_and_the_sentence_says_what_to_set() {
        let refusal = refusal(&[], "tcp+tls://zk-0.team:2281/chroot").unwrap();
        assert!(refusal.contains("names zk-0.team:2281,"), "{refusal}");
        assert!(
            refusal.contains("add zk-0.team:2281 to zookeeper.otherEnsembles.hosts of its chart"),
            "{refusal}"
        );
    }

    #[test]
    fn only_hosts_on_the_list_may_be_named_at_their_port_and_all_of_a_lock_have_to_be() {
        let list = [
            "zk-0.team",
            "ZK-1.Team:2281",
            "*.zk.example.com",
            "[fd00::1]:2182",
            "10.0.0.7",
        ];
        for connect in [
            "zk-0.team",
            "tcp+tls://zk-0.team:2181/x",
            "Zk-0.TEAM.:2181,zk-1.team:2281",
            "a.zk.example.com,b.c.zk.example.com:2181",
            "[fd00::1]:2182",
            "10.0.0.7",
        ] {
            assert_eq!(refusal(&list, connect), None, "{connect}");
        }
        for (connect, stranger) in [
            ("zk-0.team:2281", "zk-0.team:2281"),
            ("zk-0.team,evil:2181", "evil:2181"),
            ("xzk-0.team", "xzk-0.team:2181"),
            ("zk-0.team.evil.com", "zk-0.team.evil.com:2181"),
            ("zk.example.com", "zk.example.com:2181"),
            (".zk.example.com", ".zk.example.com:2181"),
            ("xzk.example.com", "xzk.example.com:2181"),
            ("a.zk.example.com:2182", "a.zk.example.com:2182"),
            ("[fd00::1]", "[fd00::1]:2181"),
            ("10.0.0.8", "10.0.0.8:2181"),
            ("127.0.0.1", "127.0.0.1:2181"),
        ] {
            let refusal = refusal(&list, connect).unwrap_or_else(|| panic!("{connect}"));
            assert!(
                refusal.contains(&format!("names {stranger},")),
                "{connect}: {refusal}"
            );
        }
    }

    #[test]
    fn a_name_that_a_pattern_covers_leads_to_no_loopback_link_local_or_metadata_address() {
        let list = hosts(&["zk-0.example.com", "*.example.com"]);
        let connect = "zk-0.example.com,zk-1.example.com".parse().unwrap();
        assert_eq!(list.unnamed(&connect), ["zk-1.example.com"]);
    }

    #[test]
    fn what_is_no_host_is_refused_with_what_would_be_right() {
        for text in [
            "",
            "*",
            "*.",
            "*.com",
            "*zk.example.com",
            "*.10.0.0.1",
            "*.0.0.7",
            "a*.example.com",
            "a,b",
            "a/chroot",
            "a:0",
            "a:x",
            "http://a",
            "a b",
            "*.*.example.com",
            "::1",
            "*..example.com",
        ] {
            let sentence = text.parse::<Host>().unwrap_err();
            assert!(
                sentence.contains("is no host: write it as in"),
                "{text}: {sentence}"
            );
        }
        for text in ["zk-0.team:2181", "*.zk.example.com:2281", "[fd00::1]:2182"] {
            assert_eq!(text.parse::<Host>().unwrap().to_string(), text);
        }
    }
}
