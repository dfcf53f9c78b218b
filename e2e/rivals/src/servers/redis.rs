//! Redis (Debian's packages `redis-server`, `redis-sentinel` and `redis-tools`): one, five, or one with a replica and
//! three Sentinels.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use super::Version;
use super::farm::{Breed, Farm, Node};

/// How many, and what they do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    Single,
    /// Five that know nothing of one another.
    Five,
    /// Server 0 is the primary at the start, server 1 its replica; 2, 3 and 4 are Sentinels.
    Sentinel,
}

/// What Sentinels call the primary.
const MASTER: &str = "primary";
const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

struct Redis(Layout);

pub(super) fn start(layout: Layout) -> anyhow::Result<Farm> {
    let count = if layout == Layout::Single { 1 } else { 5 };
    Farm::start(Box::new(Redis(layout)), count)
}

impl Redis {
    fn is_sentinel(&self, index: usize) -> bool {
        self.0 == Layout::Sentinel && index >= 2
    }

    fn port_of(&self, index: usize) -> u16 {
        if self.is_sentinel(index) {
            SENTINEL_PORT
        } else {
            PORT
        }
    }

    fn ask(&self, farm: &Farm, index: usize, words: &[&str]) -> Option<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-h", &farm.nodes[index].host.address().to_string()]);
        command.args(["-p", &self.port_of(index).to_string()]).args(words);
        farm.ask(command)
    }
}

impl Breed for Redis {
    fn port(&self) -> u16 {
        PORT
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let node = &nodes[index];
        let file = node.directory.join("redis.conf");
        let address = node.host.address();
        // Sentinel writes its file anew when it learns something, which a restart has to find.
        if !file.exists() {
            let own = format!(
                "bind {address}\nport {}\nprotected-mode no\ndir {}\n",
                self.port_of(index),
                node.directory.display()
            );
            let first = nodes[0].host.address();
            let rest = if self.is_sentinel(index) {
                format!(
                    "sentinel monitor {MASTER} {first} {PORT} 2\nsentinel down-after-milliseconds {MASTER} 3000\n\
                     sentinel failover-timeout {MASTER} 10000\n"
                )
            } else {
                let replica = match (self.0, index) {
                    (Layout::Sentinel, 1) => format!("replicaof {first} {PORT}\n"),
                    _ => String::new(),
                };
                format!("appendonly yes\nmaxmemory 32mb\nmaxmemory-policy allkeys-lru\n{replica}")
            };
            std::fs::write(&file, own + &rest)?;
        }
        let mut command = Command::new("redis-server");
        command.arg(&file);
        if self.is_sentinel(index) {
            command.arg("--sentinel");
        }
        Ok(command)
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        let pongs = self
            .ask(farm, index, &["ping"])
            .is_some_and(|answer| answer.trim() == "PONG");
        if self.0 != Layout::Sentinel {
            return pongs;
        }
        // Each Sentinel has to know the replica and both others before it can fail over.
        let knows = || {
            let told = self.ask(farm, index, &["sentinel", "master", MASTER])?;
            let lines: Vec<_> = told.lines().collect();
            let value = |name| {
                lines
                    .iter()
                    .position(|line| *line == name)
                    .and_then(|at| lines.get(at + 1))
            };
            Some(value("num-slaves") == Some(&"1") && value("num-other-sentinels") == Some(&"2"))
        };
        // A restarted primary is made a replica of the new one, and copies it.
        let is_in_step = || {
            let told = self.ask(farm, index, &["info", "replication"])?;
            Some(match told.contains("role:master") {
                true => told.contains("state=online"),
                false => told.contains("master_link_status:up"),
            })
        };
        pongs
            && Some(true)
                == match self.is_sentinel(index) {
                    true => knows(),
                    false => is_in_step(),
                }
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let told = self.ask(farm, 0, &["info", "server"])?;
        let version = told
            .lines()
            .find_map(|line| line.strip_prefix("redis_version:"))?;
        Some(vec![("Redis", version.trim().to_owned())])
    }

    fn leader(&self, farm: &Farm) -> Option<usize> {
        match self.0 {
            Layout::Single => Some(0),
            Layout::Five => None,
            Layout::Sentinel => {
                let told = self.ask(farm, 2, &["sentinel", "get-master-addr-by-name", MASTER])?;
                let address = told.lines().next()?.to_owned();
                (0..2).find(|&index| farm.nodes[index].host.address().to_string() == address)
            }
        }
    }

    fn addresses(&self, nodes: &[Node]) -> String {
        let all: Vec<_> = (0..nodes.len())
            .filter(|&index| self.0 != Layout::Sentinel || self.is_sentinel(index))
            .map(|index| format!("{}:{}", nodes[index].host.address(), self.port_of(index)))
            .collect();
        match self.0 {
            Layout::Sentinel => format!("sentinel:{MASTER}:{}", all.join(",")),
            Layout::Single | Layout::Five => all.join(","),
        }
    }

    /// Commands; a primary counts those that it sends to its replica once.
    fn requests(&self, farm: &Farm) -> Option<f64> {
        let count = |index| {
            let told = self.ask(farm, index, &["info", "stats"])?;
            let mut lines = told.lines();
            let value = lines.find_map(|line| line.strip_prefix("total_commands_processed:"))?;
            value.trim().parse::<f64>().ok()
        };
        let nodes = 0..farm.nodes.len();
        nodes.filter(|&index| !self.is_sentinel(index)).map(count).sum()
    }

    fn empty_memory(&self, farm: &Farm) -> anyhow::Result<()> {
        for index in (0..farm.nodes.len()).filter(|&index| !self.is_sentinel(index)) {
            // A replica says that it takes no writes, and has what its primary has.
            self.ask(farm, index, &["flushall"])
                .context("Redis is not emptied")?;
        }
        Ok(())
    }

    /// Twice as much as it may keep.
    fn fill_memory(&self, farm: &Farm) -> anyhow::Result<()> {
        for index in (0..farm.nodes.len()).filter(|&index| !self.is_sentinel(index)) {
            let mut command = Command::new("redis-cli");
            command
                .args(["-h", &farm.nodes[index].host.address().to_string()])
                .args(["eval", FILL, "0"]);
            lockkeeper_testbed::Process::piped(&mut command);
            let filled = farm
                .observer()
                .spawn("fill", command)?
                .output_within(Duration::from_secs(60))?
                .context("Redis does not get full")?;
            // A replica refuses to be written to, and has what its primary has.
            ensure!(
                filled.status.success(),
                "{}",
                String::from_utf8_lossy(&filled.stderr)
            );
        }
        Ok(())
    }
}

/// 64 MiB in values of 16 KiB.
const FILL: &str =
    "local value = string.rep('x', 16384); for i = 1, 4096 do redis.call('set', 'fill-' .. i, value) end";
