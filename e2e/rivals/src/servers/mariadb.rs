//! One MariaDB (Debian's package `mariadb-server`).

use std::process::Command;

use anyhow::ensure;

use super::Version;
use super::farm::{Breed, Farm, Node};
use super::postgres::{CONNECTIONS, open_to, owner};

/// Run at each start: the user of the drivers, and its database.
const INIT: &str = "CREATE DATABASE IF NOT EXISTS lockkeeper;\n\
    CREATE USER IF NOT EXISTS 'lockkeeper'@'%' IDENTIFIED BY 'lockkeeper';\n\
    GRANT ALL ON lockkeeper.* TO 'lockkeeper'@'%';\n";

struct MariaDb;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(MariaDb), 1)
}

impl Breed for MariaDb {
    fn port(&self) -> u16 {
        3306
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let node = &nodes[index];
        let data = node.directory.join("data");
        let init = node.directory.join("init.sql");
        if !data.exists() {
            let (user, group) = owner("mysql")?;
            open_to(&node.directory, user, group)?;
            std::fs::write(&init, INIT)?;
            let made = Command::new("mariadb-install-db")
                .args(["--no-defaults", "--user=mysql", "--skip-test-db"])
                .args(["--auth-root-authentication-method=normal"])
                .arg(format!("--datadir={}", data.display()))
                // Two at once would use the same names in the machine's own folder.
                .env("TMPDIR", &node.directory)
                .output()?;
            ensure!(
                made.status.success(),
                "mariadb-install-db: {}",
                String::from_utf8_lossy(&made.stderr)
            );
        }
        let mut command = Command::new("mariadbd");
        command
            .args(["--no-defaults", "--user=mysql", "--skip-name-resolve"])
            .arg(format!("--max-connections={CONNECTIONS}"))
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--bind-address={}", node.host.address()))
            .arg(format!("--socket={}", node.directory.join("socket").display()))
            .arg(format!("--pid-file={}", node.directory.join("pid").display()))
            .arg(format!("--init-file={}", init.display()));
        Ok(command)
    }

    fn serves(&self, farm: &Farm, _: usize) -> bool {
        ask(farm, "select 1").is_some_and(|answer| answer.trim() == "1")
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let answer = ask(farm, "select version()")?;
        // As in 10.11.19-MariaDB-0+deb12u1.
        Some(vec![("MariaDB", answer.trim().split('-').next()?.to_owned())])
    }

    fn requests(&self, farm: &Farm) -> Option<f64> {
        let answer = ask(farm, "show global status like 'Questions'")?;
        answer.split_whitespace().nth(1)?.parse().ok()
    }

    fn leader(&self, _: &Farm) -> Option<usize> {
        Some(0)
    }
}

fn ask(farm: &Farm, statement: &str) -> Option<String> {
    let mut command = Command::new("mariadb");
    command
        .args(["--no-defaults", "-ulockkeeper", "-plockkeeper", "-NBe", statement])
        .args(["-h", &farm.nodes[0].host.address().to_string(), "lockkeeper"]);
    farm.ask(command)
}
