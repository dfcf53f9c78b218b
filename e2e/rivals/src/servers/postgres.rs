//! One PostgreSQL (Debian's package `postgresql`).

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::Version;
use super::farm::{Breed, Farm, Node};

/// Enough for the largest crowd; the default is 100 (PostgreSQL) or 151 (MariaDB).
pub(super) const CONNECTIONS: u32 = 600;

/// The user of the drivers, and its database.
const USER: &str = "lockkeeper";

struct Postgres {
    /// Where its programs are.
    programs: PathBuf,
}

pub(super) fn start() -> anyhow::Result<Farm> {
    let programs = std::fs::read_dir("/usr/lib/postgresql")
        .context("PostgreSQL is missing: install the package postgresql")?
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .max()
        .context("PostgreSQL is missing: install the package postgresql")?;
    Farm::start(Box::new(Postgres { programs }), 1)
}

impl Breed for Postgres {
    fn port(&self) -> u16 {
        5432
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let node = &nodes[index];
        let data = node.directory.join("data");
        let (user, group) = owner("postgres")?;
        if !data.exists() {
            // It refuses to run as root.
            open_to(&node.directory, user, group)?;
            let made = Command::new(self.programs.join("initdb"))
                .args(["--auth=trust", "--no-sync", "--username=postgres", "--pgdata"])
                .arg(&data)
                .uid(user)
                .gid(group)
                .output()?;
            ensure!(
                made.status.success(),
                "initdb: {}",
                String::from_utf8_lossy(&made.stderr)
            );
            let rules = "local all all trust\nhost all all 0.0.0.0/0 trust\n";
            std::fs::write(data.join("pg_hba.conf"), rules)?;
        }
        // It becomes another user only when it is on its host, where only root may go.
        let mut command = Command::new("setpriv");
        command
            .args([
                format!("--reuid={user}"),
                format!("--regid={group}"),
                "--clear-groups".to_owned(),
            ])
            .arg(self.programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", &format!("listen_addresses={}", node.host.address())])
            .args(["-c", &format!("max_connections={CONNECTIONS}")])
            .args(["-c", "shared_preload_libraries=pg_stat_statements"])
            .args([
                "-c",
                &format!("unix_socket_directories={}", node.directory.display()),
            ]);
        Ok(command)
    }

    fn serves(&self, farm: &Farm, _: usize) -> bool {
        let serves = || ask(farm, USER, "select 1").is_some_and(|answer| answer.trim() == "1");
        // At the first time there is no such user yet.
        serves()
            || (ask(farm, "postgres", &format!("create role {USER} login")).is_some()
                && ask(farm, "postgres", &format!("create database {USER} owner {USER}")).is_some()
                && ask(farm, "postgres", "create extension pg_stat_statements").is_some()
                && serves())
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let answer = ask(farm, USER, "show server_version")?;
        // Debian names its package after it.
        Some(vec![("PostgreSQL", answer.split_whitespace().next()?.to_owned())])
    }

    /// Statements. The server's own statistics (`pg_stat_database`) are seconds late.
    fn requests(&self, farm: &Farm) -> Option<f64> {
        let count = "select sum(calls) from pg_stat_statements";
        ask(farm, "postgres", count)?.trim().parse().ok()
    }

    fn leader(&self, _: &Farm) -> Option<usize> {
        Some(0)
    }
}

/// What the server answers to a user, in the database of the same name.
fn ask(farm: &Farm, user: &str, statement: &str) -> Option<String> {
    let mut command = Command::new("psql");
    command
        .args(["-h", &farm.nodes[0].host.address().to_string()])
        .args(["-U", user, "-d", user, "-qAtc", statement]);
    farm.ask(command)
}

/// The numbers of a user and its group.
pub(super) fn owner(name: &str) -> anyhow::Result<(u32, u32)> {
    let users = std::fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.split(':').next() == Some(name));
    let fields: Vec<_> = line
        .with_context(|| format!("no user {name}"))?
        .split(':')
        .collect();
    Ok((fields[2].parse()?, fields[3].parse()?))
}

/// Gives a directory to a user, and lets that user through to it.
pub(super) fn open_to(directory: &Path, user: u32, group: u32) -> anyhow::Result<()> {
    use std::os::unix::fs::{PermissionsExt, chown};
    let above = directory.parent().context("a directory above")?;
    std::fs::set_permissions(above, std::fs::Permissions::from_mode(0o755))?;
    Ok(chown(directory, Some(user), Some(group))?)
}
