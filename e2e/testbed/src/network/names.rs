//! Names for the hosts of a network, since it has no DNS.

use std::io;
use std::path::{Path, PathBuf};

use super::{Kind, Network};

/// What [`Network::hosts_file`] is called.
const FILE: &str = "hosts";

impl Network {
    /// Writes a file into a directory that names all hosts of this network, those to come included, after what this
    /// machine's own file says.
    ///
    /// Java asks for the name of an address whenever a client of ZooKeeper connects. No host reaches a DNS server, so
    /// Java would wait for 5 to 10 s each time. It reads this file instead if [`Network::java_hosts_file`] names it.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn hosts_file(&self, directory: &Path) -> io::Result<PathBuf> {
        // A machine may have none.
        let mut text = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
        let block = match &self.kind {
            Kind::Namespaces { .. } => "10.99.0".to_owned(),
            Kind::Loopback { block: [a, b], .. } => format!("127.{a}.{b}"),
        };
        text.push('\n');
        // In ascending order: Java takes the first line in which it finds the address as a part.
        for number in 1..=u8::MAX {
            text += &format!("{block}.{number} host-{number}\n");
        }
        let file = directory.join(FILE);
        std::fs::write(&file, text)?;
        Ok(file)
    }

    /// The argument that makes a Java machine take names from a file.
    pub fn java_hosts_file(file: &Path) -> String {
        format!("-Djdk.net.hosts.file={}", file.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owner::Owner;

    #[test]
    fn every_host_has_a_name_and_no_earlier_line_has_its_address_as_a_part() {
        let owner = Owner::new();
        let network = Network::loopback(&owner, "this test needs no cuts").unwrap();
        let directory = owner.directory().unwrap();
        let text = std::fs::read_to_string(network.hosts_file(directory.path()).unwrap()).unwrap();
        for number in 1..=12 {
            let address = network.host(format!("{number}")).unwrap().address().to_string();
            let line = text.lines().find(|line| line.contains(&address));
            assert_eq!(line, Some(format!("{address} host-{number}").as_str()));
        }
    }
}
