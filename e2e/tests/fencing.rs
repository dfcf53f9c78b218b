//! What docs/examples/fencing.sql promises, on a real PostgreSQL.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

const FENCING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/examples/fencing.sql");

/// A table behind the fence, which also keeps the order of what was written.
const TABLE: &str = "
    CREATE TABLE report (id bigserial PRIMARY KEY, token bigint NOT NULL, line text NOT NULL);
    CREATE TRIGGER fenced BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON report
        FOR EACH STATEMENT EXECUTE FUNCTION lockkeeper.fenced('/locks/report');
    CREATE ROLE application LOGIN;
    GRANT USAGE ON SCHEMA lockkeeper TO application;
    GRANT ALL ON report, report_id_seq TO application;
";

/// A look at a condition every 20 ms, for up to a minute.
const LOOKS: u32 = 3_000;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// A PostgreSQL of its own, on a Unix socket in a directory of its own.
struct Postgres {
    programs: PathBuf,
    directory: TempDir,
    user: Option<(u32, u32)>,
    server: Child,
}

/// A session that stays open: a transaction whose statements come one by one.
struct Session {
    psql: Child,
    statements: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Postgres {
    /// Starts it with the fence and the table behind it. `None` where PostgreSQL is not installed.
    fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            // Not eprintln!: the test harness shows that of failed tests only.
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
        until("the server answers", || {
            postgres.psql(None, "SELECT 1").status.success()
        });
        let fencing = postgres.client("postgres", None).args(["-f", FENCING]).output();
        assert!(fencing.as_ref().unwrap().status.success(), "{fencing:?}");
        let table = postgres.psql(None, TABLE);
        assert!(table.status.success(), "{table:?}");
        Some(postgres)
    }

    fn client(&self, role: &str, token: Option<u64>) -> Command {
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

    /// As the owner of everything.
    fn psql(&self, token: Option<u64>, sql: &str) -> Output {
        self.client("postgres", token).args(["-c", sql]).output().unwrap()
    }

    /// What one query answers, which must not fail.
    fn ask(&self, sql: &str) -> String {
        let output = self.psql(None, sql);
        assert!(output.status.success(), "{sql}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// A write by an application that knows nothing of fences.
    fn write(&self, token: Option<u64>, line: &str) -> Result<(), String> {
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

    fn session(&self, token: u64) -> Session {
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

    fn lines(&self) -> String {
        self.ask("SELECT coalesce(string_agg(line, ' ' ORDER BY id), '') FROM report")
    }

    /// Waits until somebody waits for a lock of the database.
    fn until_somebody_waits(&self) {
        until("a session waits for another one's transaction", || {
            self.ask("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'") == "1"
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // By the process id in its data directory; its sessions end with it.
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
    /// In one write: after a refused statement nobody reads any more.
    fn say(&mut self, sql: &str) {
        self.statements.write_all(format!("{sql};\n").as_bytes()).unwrap();
    }

    /// Says it and waits until it is done.
    fn tell(&mut self, sql: &str) {
        self.say(sql);
        self.say("SELECT 'done'");
        let mut answer = String::new();
        while answer.trim() != "done" {
            answer.clear();
            assert_ne!(self.answers.read_line(&mut answer).unwrap(), 0, "{sql}");
        }
    }

    /// Waits for the end of everything that was said.
    fn end(mut self) -> Result<(), String> {
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

/// Where Debian and its descendants keep the server's programs: those of the newest version.
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
    // initdb wants to go back to where it was started, which may be closed to its user.
    command.current_dir("/").stdout(Stdio::null());
    command
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if condition() {
            return;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
    panic!("not within a minute: {what}");
}

fn is_stale(refused: &Result<(), String>) -> bool {
    refused.as_ref().is_err_and(|reason| reason.contains("is stale"))
}

#[test]
fn a_stale_token_is_refused_and_the_present_one_goes_on() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "a"), Ok(()));
    assert_eq!(postgres.write(Some(7), "b"), Ok(()));
    assert_eq!(postgres.write(Some(9), "c"), Ok(()));
    let refused = postgres.write(Some(7), "d");
    assert!(is_stale(&refused), "{refused:?}");
    // A fencing token has 64 bits.
    assert_eq!(postgres.write(Some(i64::MAX as u64), "e"), Ok(()));
    assert!(is_stale(&postgres.write(Some(9), "f")));
    assert_eq!(postgres.lines(), "a b c e");
}

#[test]
fn nobody_writes_to_a_protected_table_without_a_token_or_turns_the_fence_back() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "a"), Ok(()));
    let refused = postgres.write(None, "b").unwrap_err();
    assert!(refused.contains("the session has no token"), "{refused}");
    for (sql, reason) in [
        ("TRUNCATE report", "the session has no token"),
        ("UPDATE report SET line = 'b'", "the session has no token"),
        ("DELETE FROM report", "the session has no token"),
        (
            "DELETE FROM lockkeeper.fence",
            "permission denied for table fence",
        ),
        (
            "SELECT lockkeeper.check_token('/locks/report', NULL)",
            "null value in column",
        ),
        (
            "SELECT lockkeeper.check_token('/locks/report', 6)",
            "token 6 of lock /locks/report is stale",
        ),
    ] {
        let output = postgres
            .client("application", None)
            .args(["-c", sql])
            .output()
            .unwrap();
        let problem = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(problem.contains(reason), "{sql}: {problem}");
    }
    assert_eq!(postgres.lines(), "a");
}

#[test]
fn a_new_holder_waits_for_a_transaction_of_the_old_one_and_then_shuts_it_out() {
    let Some(postgres) = Postgres::start() else { return };
    // Seen before, so that the old one only shares the fence and does not raise it.
    assert_eq!(postgres.write(Some(7), "first"), Ok(()));
    let mut old = postgres.session(7);
    old.tell("BEGIN; INSERT INTO report (token, line) VALUES (7, 'old')");
    let mut new = postgres.session(9);
    new.say("INSERT INTO report (token, line) VALUES (9, 'new')");
    postgres.until_somebody_waits();
    old.tell("INSERT INTO report (token, line) VALUES (7, 'still-old'); COMMIT");
    assert_eq!(new.end(), Ok(()));
    old.say("INSERT INTO report (token, line) VALUES (7, 'late')");
    let refused = old.end();
    assert!(is_stale(&refused), "{refused:?}");
    assert_eq!(postgres.lines(), "first old still-old new");
}

#[test]
fn an_old_holder_that_comes_while_the_new_one_writes_is_refused() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "before"), Ok(()));
    let mut new = postgres.session(9);
    new.tell("BEGIN; INSERT INTO report (token, line) VALUES (9, 'new')");
    let mut old = postgres.session(7);
    old.say("INSERT INTO report (token, line) VALUES (7, 'late')");
    postgres.until_somebody_waits();
    new.tell("COMMIT");
    assert!(is_stale(&old.end()));
    assert_eq!(postgres.lines(), "before new");
}

#[test]
fn transactions_under_one_token_do_not_wait_for_each_other() {
    let Some(postgres) = Postgres::start() else { return };
    assert_eq!(postgres.write(Some(7), "a"), Ok(()));
    let mut open = postgres.session(7);
    open.tell("BEGIN; INSERT INTO report (token, line) VALUES (7, 'b')");
    // Returns only if it does not wait for the open one.
    assert_eq!(postgres.write(Some(7), "c"), Ok(()));
    open.tell("COMMIT");
    assert_eq!(postgres.lines(), "a b c");
}

#[test]
fn of_many_concurrent_writers_no_old_write_lands_after_a_newer_one() {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 20;
    let Some(postgres) = Postgres::start() else { return };
    let postgres = &postgres;
    let landed: u64 = std::thread::scope(|scope| {
        let write = |writer: u64| {
            (0..ROUNDS)
                .filter(|round| {
                    // Each writer has tokens between those of the others, and no hurry.
                    let token = 1 + round * WRITERS + (writer + round) % WRITERS;
                    let mut session = postgres.session(token);
                    session.say(&format!(
                        "BEGIN; INSERT INTO report (token, line) VALUES ({token}, 'x'); \
                         SELECT pg_sleep(random() * 0.01); \
                         INSERT INTO report (token, line) VALUES ({token}, 'y'); COMMIT"
                    ));
                    let end = session.end();
                    assert!(end.is_ok() || is_stale(&end), "{end:?}");
                    end.is_ok()
                })
                .count() as u64
        };
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || write(writer)))
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    let tokens = postgres.ask("SELECT coalesce(string_agg(token::text, ' ' ORDER BY id), '') FROM report");
    let tokens: Vec<u64> = tokens
        .split_whitespace()
        .map(|token| token.parse().unwrap())
        .collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(
        tokens.len() as u64,
        2 * landed,
        "both writes of a transaction, or none"
    );
    assert_eq!(
        tokens.last(),
        Some(&(WRITERS * ROUNDS)),
        "the newest token is never refused"
    );
}
