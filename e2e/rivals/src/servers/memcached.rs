//! One memcached (Debian's package `memcached`).

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::Version;
use super::farm::{Breed, Farm, Node};

/// In MiB: small, so that it is full soon.
const MEMORY: usize = 16;

/// How long it may take to tell its counters or its version.
const ANSWER: Duration = Duration::from_secs(2);

struct Memcached;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(Memcached), 1)
}

impl Breed for Memcached {
    fn port(&self) -> u16 {
        11211
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let mut command = Command::new("memcached");
        command.args(["-u", "nobody", "-U", "0", "-m", &MEMORY.to_string()]);
        command.args(["-l", &nodes[index].host.address().to_string()]);
        Ok(command)
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        farm.accepts(index)
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let address = SocketAddrV4::new(farm.nodes[0].host.address(), self.port());
        let mut stream = farm.observer().connect(address, ANSWER).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        stream.write_all(b"version\r\n").ok()?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).ok()?;
        Some(vec![(
            "memcached",
            line.strip_prefix("VERSION ")?.trim().to_owned(),
        )])
    }

    fn leader(&self, _: &Farm) -> Option<usize> {
        Some(0)
    }

    fn requests(&self, farm: &Farm) -> Option<f64> {
        let address = SocketAddrV4::new(farm.nodes[0].host.address(), self.port());
        let mut stream = farm.observer().connect(address, ANSWER).ok()?;
        stream.set_read_timeout(Some(ANSWER)).ok()?;
        stream.write_all(b"stats\r\n").ok()?;
        let mut sum = None;
        for line in BufReader::new(stream).lines() {
            let line = line.ok()?;
            if line == "END" {
                return sum;
            }
            // `add` and `cas` count as `set`.
            let value = ["STAT cmd_get ", "STAT cmd_set "]
                .iter()
                .find_map(|name| line.strip_prefix(name));
            if let Some(value) = value {
                *sum.get_or_insert(0.0) += value.parse::<f64>().ok()?;
            }
        }
        None
    }

    fn empty_memory(&self, farm: &Farm) -> anyhow::Result<()> {
        let address = SocketAddrV4::new(farm.nodes[0].host.address(), self.port());
        let mut stream = farm.observer().connect(address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(b"flush_all\r\n")?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        ensure!(line.trim() == "OK", "memcached says {line:?}");
        Ok(())
    }

    /// Values of all sizes up to 512 KiB: it evicts within a class of sizes.
    fn fill_memory(&self, farm: &Farm) -> anyhow::Result<()> {
        let address = SocketAddrV4::new(farm.nodes[0].host.address(), self.port());
        let stream = farm.observer().connect(address, Duration::from_secs(5))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut stream = stream;
        for size in [32, 64, 128, 256, 1 << 10, 1 << 12, 1 << 14] {
            let value = vec![b'x'; size];
            for number in 0..2 * (MEMORY << 20) / (size + 64) {
                write!(stream, "set fill-{size}-{number} 0 0 {size} noreply\r\n")?;
                stream.write_all(&value)?;
                stream.write_all(b"\r\n")?;
            }
        }
        stream.write_all(b"version\r\n")?;
        let mut line = String::new();
        reader.read_line(&mut line).context("memcached does not answer")?;
        ensure!(line.starts_with("VERSION"), "memcached says {line:?}");
        Ok(())
    }
}
