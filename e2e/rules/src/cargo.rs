//! Building the copy and running its tests, each with a time limit.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use rustix::time::{ClockId, clock_gettime};

use crate::list::Test;
use crate::scratch::{OUT, Scratch};

/// A build from nothing takes minutes.
const BUILD: Duration = Duration::from_secs(3_600);

/// No test of the list takes longer, even on a busy machine.
const TEST: Duration = Duration::from_secs(300);

/// This many lines of the compiler's errors show which rule they are about.
const ERROR_LINES: usize = 12;

/// Time between two looks at a child.
const LOOK: Duration = Duration::from_millis(20);

/// Cargo, in the copy.
#[derive(Debug)]
pub struct Cargo {
    program: String,
    tree: PathBuf,
    target: PathBuf,
    /// The target directory of the repository itself.
    shared: PathBuf,
    is_interrupted: Arc<AtomicBool>,
}

/// The tests of a target, as a program.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    /// The folder of the package, in which its tests run.
    folder: PathBuf,
}

/// The result of tests.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Those that succeeded, with their modules.
    pub passed: Vec<String>,
    pub failed: Vec<String>,
    /// The program crashed: by `abort`, or an overflow of the stack.
    pub is_aborted: bool,
    pub is_endless: bool,
}

/// How a child ended.
enum Ended {
    With(ExitStatus),
    TooLate,
}

impl Cargo {
    /// For a copy. Children are ended, and an error is returned, as soon as `is_interrupted`.
    pub fn new(scratch: &Scratch, is_interrupted: Arc<AtomicBool>) -> Self {
        Self {
            program: std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()),
            tree: scratch.tree().to_owned(),
            target: scratch.target().to_owned(),
            shared: scratch.shared().to_owned(),
            is_interrupted,
        }
    }

    /// Builds the targets of these tests in one call of cargo, so that all of them share the crates below
    /// them. They share the external crates, and only these, with the repository itself, whose builds have made them already.
    ///
    /// # Errors
    /// When they cannot be built, with the compiler's first errors; or when it was interrupted.
    pub(crate) fn build(&self, tests: &[&Test]) -> Result<Vec<Program>> {
        let mut command = Command::new(&self.program);
        command.args(["test", "--no-run", "--locked", "--workspace"]);
        let targets: BTreeSet<_> = tests.iter().map(|test| test.target.as_str()).collect();
        for target in targets {
            match target {
                "lib" => command.arg("--lib"),
                target => command.args(["--test", target]),
            };
        }
        command.env("CARGO_TARGET_DIR", &self.target);
        command.env("CARGO_BUILD_BUILD_DIR", &self.shared);
        // It only starts the compiler. With it cargo keeps what it builds of the copy apart from what it builds of the
        // repository, which else has the same names: the code with its switches would count as the repository's own.
        command.env("RUSTC_WORKSPACE_WRAPPER", "env");
        command.env("CARGO_TERM_COLOR", "never");
        let (ended, said) = self.run(command.current_dir(&self.tree), BUILD)?;
        match ended {
            Ended::With(status) if status.success() => {}
            Ended::With(_) => bail!(
                "the code with its switches does not build:\n{}",
                first_error(&said)
            ),
            Ended::TooLate => bail!("the code with its switches does not build within {BUILD:?}"),
        }
        let programs: Vec<_> = said.lines().filter_map(built).collect();
        tests
            .iter()
            .map(|test| self.program_of(test, &programs))
            .collect()
    }

    /// The program with the tests of a target, among those that were built.
    fn program_of(&self, test: &Test, built: &[&Path]) -> Result<Program> {
        let Test { package, target, .. } = test;
        let name = match target.as_str() {
            "lib" => package.replace('-', "_"),
            target => target.replace('-', "_"),
        };
        let is_it = |path: &&&Path| {
            let file = path
                .file_name()
                .and_then(|file| file.to_str())
                .unwrap_or_default();
            file.rsplit_once('-').is_some_and(|(file, _)| file == name)
        };
        let found: Vec<_> = built.iter().filter(is_it).collect();
        ensure!(
            found.len() == 1,
            "cargo has built {} programs for {package}/{target}",
            found.len()
        );
        Ok(Program {
            path: self.tree.join(found[0]),
            folder: test.folder(&self.tree),
        })
    }

    /// Runs tests by name, without the rule of this number; all of them when no name is given.
    ///
    /// # Errors
    /// When they cannot be started, or were interrupted.
    pub(crate) fn run_tests(
        &self,
        program: &Program,
        names: &[&str],
        with: &BTreeMap<String, String>,
        out: Option<usize>,
    ) -> Result<Outcome> {
        let mut command = Command::new(&program.path);
        command.args(names).envs(with).current_dir(&program.folder);
        command.env("CARGO_MANIFEST_DIR", &program.folder);
        command
            .env_remove(OUT)
            .envs(out.map(|number| (OUT, number.to_string())));
        let (ended, said) = self.run(&mut command, TEST)?;
        let mut outcome = Outcome::of(&said);
        match ended {
            Ended::TooLate => outcome.is_endless = true,
            Ended::With(status) => outcome.is_aborted = !status.success() && outcome.failed.is_empty(),
        }
        Ok(outcome)
    }

    /// Runs a command in a process group of its own, so that all of it can be ended, and returns its output.
    fn run(&self, command: &mut Command, limit: Duration) -> Result<(Ended, String)> {
        let log = self.target.join("last.log");
        let output = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot start {:?}", command.get_program()))?;
        let ended = Group(child).wait(limit, &self.is_interrupted)?;
        Ok((ended, String::from_utf8_lossy(&fs::read(&log)?).into_owned()))
    }
}

/// A child and all its descendants, which end with it.
struct Group(Child);

impl Group {
    fn wait(mut self, limit: Duration, is_interrupted: &AtomicBool) -> Result<Ended> {
        let begun = now();
        loop {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Ended::With(status));
            }
            if is_interrupted.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if now() - begun >= limit {
                return Ok(Ended::TooLate);
            }
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A test that was ended may also have left processes of its group.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}

impl Outcome {
    fn of(said: &str) -> Self {
        let mut outcome = Self::default();
        for line in said.lines() {
            let Some((name, verdict)) = line
                .strip_prefix("test ")
                .and_then(|line| line.split_once(" ... "))
            else {
                continue;
            };
            match verdict {
                "ok" => outcome.passed.push(name.to_owned()),
                "FAILED" => outcome.failed.push(name.to_owned()),
                _ => {}
            }
        }
        outcome
    }

    /// Whether the function of this name, in whatever module, succeeded.
    pub(crate) fn has_passed(&self, name: &str) -> bool {
        self.passed.iter().any(|passed| is_it(passed, name))
    }
}

/// Whether the path of a test is that of the function `name`.
pub(crate) fn is_it(path: &str, name: &str) -> bool {
    path.rsplit("::").next() == Some(name)
}

/// The path in a line such as "  Executable tests/promises.rs (/…/promises-0123456789abcdef)".
fn built(line: &str) -> Option<&Path> {
    let (_, path) = line.trim_start().strip_prefix("Executable ")?.rsplit_once('(')?;
    path.strip_suffix(')').map(Path::new)
}

fn first_error(said: &str) -> String {
    let lines = said.lines().skip_while(|line| !line.starts_with("error"));
    lines.take(ERROR_LINES).collect::<Vec<_>>().join("\n")
}

/// Time since boot.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tests_said_is_read() {
        let said =
            "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ignored\n\nfailures:\n    c\n";
        let outcome = Outcome::of(said);
        assert_eq!(outcome.passed, ["a::b"]);
        assert_eq!(outcome.failed, ["c"]);
        assert!(outcome.has_passed("b") && !outcome.has_passed("a::b"));
    }

    #[test]
    fn a_child_that_does_not_end_is_ended_with_all_that_it_started() {
        let mut command = Command::new("sh");
        let child = command
            .args(["-c", "sleep 60 & sleep 60"])
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Pid::from_child(&child);
        let ended = Group(child)
            .wait(Duration::ZERO, &AtomicBool::new(false))
            .unwrap();
        assert!(matches!(ended, Ended::TooLate));
        let end = now() + Duration::from_secs(10);
        // Until init has reaped the second one.
        while rustix::process::test_kill_process_group(group).is_ok() {
            assert!(now() < end, "something is left");
            std::thread::sleep(LOOK);
        }
    }
}
