//! A PostgreSQL server with the fence, and sessions with it.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use lockkeeper_testbed::process::wait_for;
use tempfile::TempDir;

const FENCING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/fencing.sql");

/// A table behind the fence, which also keeps the order of the writes.
const TABLE: &str = "
    CREATE TABLE report (id bigserial PRIMARY KEY, token bigint NOT NULL, line text NOT NULL);
    CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON report
        FOR EACH STATEMENT EXECUTE FUNCTION lockkeeper.fenced('/locks/report');
    CREATE ROLE application LOGIN;
    GRANT USAGE ON SCHEMA lockkeeper TO application;
    GRANT ALL ON report, report_id_seq TO application;
";

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(60);

/// A PostgreSQL server on a Unix socket in a directory of its own.
pub struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    user: Option<(u32, u32)>,
    server: Child,
}

/// A session that stays open, with a transaction whose statements come one by one.
pub struct Session {
    psql: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Postgres {
    /// Starts it with the fence and the table behind it. `None` where PostgreSQL is not installed.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            // Not eprintln!, whose output the test harness shows only for failed tests.
            let _ = writeln!(
                std::io::stderr(),
                "skipped: the fencing tests (no /usr/lib/postgresql/*/bin/initdb; `make setup` installs it)"
            );
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        // The server refuses to run as root.
        let user = (directory.path().metadata().unwrap().uid() == 0).then(postgres_user);
        if let Some((uid, gid)) = user {
            chown(directory.path(), Some(uid), Some(gid)).unwrap();
        }
        let data = directory.path().join("data");
        let initdb = command(&programs, "initdb", user)
            .args(["--username=postgres", "--auth=trust", "--no-sync", "--pgdata"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(initdb.status.success(), "{initdb:?}");
        let server = command(&programs, "postgres", user)
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-D"])
            .arg(&data)
            .arg("-k")
            .arg(directory.path())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let postgres = Self {
            programs,
            directory,
            user,
            server,
        };
        let answers = || postgres.psql(None, "SELECT 1").status.success().then_some(());
        wait_for(BOUND, answers).expect("the server answers");
        let fencing = postgres.client("postgres", None).args(["-f", FENCING]).output();
        assert!(fencing.as_ref().unwrap().status.success(), "{fencing:?}");
        let table = postgres.psql(None, TABLE);
        assert!(table.status.success(), "{table:?}");
        Some(postgres)
    }

    pub fn client(&self, role: &str, token: Option<u64>) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            "postgres",
            "-U",
            role,
        ])
        .arg("-h")
        .arg(self.directory.path());
        match token {
            Some(token) => psql.env("PGOPTIONS", format!("-c lockkeeper.token={token}")),
            None => psql.env_remove("PGOPTIONS"),
        };
        psql
    }

    /// Runs SQL as the owner of everything.
    fn psql(&self, token: Option<u64>, sql: &str) -> Output {
        self.client("postgres", token).args(["-c", sql]).output().unwrap()
    }

    /// The answer to one query, which must not fail.
    pub fn ask(&self, sql: &str) -> String {
        let output = self.psql(None, sql);
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A write by an application without knowledge of the fence.
    pub fn write(&self, token: Option<u64>, line: &str) -> Result<(), String> {
        let sql = format!(
            "INSERT INTO report (token, line) VALUES ({}, '{line}')",
            token.unwrap_or(0)
        );
        let output = self
            .client("application", token)
            .args(["-c", &sql])
            .output()
            .unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8(output.stderr).unwrap()),
        }
    }

    pub fn session(&self, token: u64) -> Session {
        let mut psql = self
            .client("application", Some(token))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Session {
            statements: psql.stdin.take().unwrap(),
            answers: BufReader::new(psql.stdout.take().unwrap()),
            psql,
        }
    }

    pub fn lines(&self) -> String {
        self.ask("SELECT coalesce(string_agg(line, ' ' ORDER BY id), '') FROM report")
    }

    /// Waits until a session waits for a lock of the database.
    pub fn until_somebody_waits(&self) {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        wait_for(BOUND, || (self.ask(waiting) == "1").then_some(()))
            .expect("a session waits for another one's transaction");
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // pg_ctl finds the server by the process id in its data directory; its sessions end with it.
        let stopped = command(&self.programs, "pg_ctl", self.user)
            .args(["stop", "--silent", "--mode=immediate", "--pgdata"])
            .arg(self.directory.path().join("data"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

impl Session {
    /// Sends a statement in one write: after a refused statement psql does not read any more.
    pub fn say(&mut self, sql: &str) {
        self.statements.write_all(format!("{sql};\n").as_bytes()).unwrap();
    }

    /// Sends a statement and waits until it is done.
    pub fn tell(&mut self, sql: &str) {
        self.say(sql);
        self.say("SELECT 'done'");
        let mut answer = String::new();
        while answer.trim() != "done" {
            answer.clear();
            assert_ne!(self.answers.read_line(&mut answer).unwrap(), 0, "{sql}");
        }
    }

    /// Ends the session, and waits until all statements are done.
    pub fn end(mut self) -> Result<(), String> {
        drop(self.statements);
        let mut problem = String::new();
        self.psql
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut problem)
            .unwrap();
        match self.psql.wait().unwrap().success() {
            true => Ok(()),
            false => Err(problem),
        }
    }
}

/// The folder of the server's programs on Debian and its derivatives, of the newest version.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|programs| programs.join("initdb").exists() && programs.join("psql").exists())
        .max()
}

/// User and group ids of `postgres`, which comes with the package.
fn postgres_user() -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let user = users.lines().find_map(|line| line.strip_prefix("postgres:"));
    let mut ids = user
        .expect("the package has made a user postgres")
        .split(':')
        .skip(1);
    let mut id = || ids.next().unwrap().parse().unwrap();
    (id(), id())
}

fn command(programs: &Path, name: &str, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(programs.join(name));
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    // initdb changes back to its working directory, which its user may have no access to.
    command.current_dir("/").stdout(Stdio::null());
    command
}
