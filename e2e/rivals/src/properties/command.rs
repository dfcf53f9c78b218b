//! The steps of a probe, done by commands that run another command under a lock: ours, `etcdctl lock` and `consul lock`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::Process;
use lockkeeper_testbed::process::wait_for;
use rustix::process::Signal;

use crate::cost::LEASE;
use crate::driver_commands;
use crate::probe::{Done, Outcome, Probe, Verb, WAIT};
use crate::programs::{consul, go};
use crate::site::{Machine, Site};
use crate::systems::{Driver, System};

/// Runs a program, whose arguments follow a folder, and writes its code there when it has ended.
const RUN: &str = "d=$1; shift; \"$@\" </dev/null >\"$d/log\" 2>&1; echo $? >\"$d/code.new\"; mv \"$d/code.new\" \"$d/code\"";

/// The command under the lock: it says that it runs, and runs until it is told to end. Meanwhile it runs what it finds,
/// which is then a program within a program.
const HOLD: &str = "touch \"$1/held\"; while [ ! -e \"$1/end\" ]; do \
    [ ! -e \"$1/inner\" ] || { mv \"$1/inner\" \"$1/inner.sh\"; sh \"$1/inner.sh\" & }; sleep 0.05; done";

/// Runs the program for each step, on a machine of its own for the first client.
///
/// # Errors
/// When the program cannot be built or started.
pub(super) fn run(
    system: &System,
    site: &Site,
    probe: Probe,
    lock: &str,
    bound: Duration,
) -> anyhow::Result<Vec<Done>> {
    let servers = site.servers.addresses();
    let mut clients: Vec<Client> = Vec::new();
    let mut done = Vec::new();
    for &(name, verb) in probe.script() {
        let at = clients.iter().position(|client| client.name == name);
        let at = at.unwrap_or_else(|| {
            clients.push(Client::new(name));
            clients.len() - 1
        });
        let client = &mut clients[at];
        let machine = &site.machines[usize::from(name != 'a')];
        let line = Line::of(system, &servers, &format!("{lock}-{name}"), lock, verb)?;
        done.push(client.step(machine, lock, verb, line, bound)?);
    }
    for machine in &site.machines {
        machine.signal_contender(Signal::KILL)?;
    }
    Ok(done)
}

/// A program and its arguments, without the command that it is to run.
struct Line {
    words: Vec<OsString>,
    /// The option that makes it do what is asked.
    call: Option<&'static str>,
    is_busy: fn(code: &str, log: &str) -> bool,
}

impl Line {
    /// `None` if the program has no option for it. Ours: `docs/run.md`. The others:
    /// <https://github.com/etcd-io/etcd/blob/main/etcdctl/README.md#lock-options-lockname-command-arg1-arg2-> has `--ttl`
    /// alone, and <https://developer.hashicorp.com/consul/commands/lock> has `-try` and `-n`.
    fn of(
        system: &System,
        servers: &str,
        name: &str,
        lock: &str,
        verb: Verb,
    ) -> anyhow::Result<Option<Self>> {
        match (system.driver, system.program) {
            (Driver::Own(options), _) => own(servers, lock, options, verb).map(Some),
            (_, Some("etcdctl")) => etcdctl(servers, lock, verb),
            (_, Some("consul")) => Ok(Some(consul_lock(servers, name, lock, verb)?)),
            _ => anyhow::bail!("{} is no command", system.name),
        }
    }
}

fn own(servers: &str, lock: &str, options: &[&str], verb: Verb) -> anyhow::Result<Line> {
    let (further, call) = match verb {
        Verb::Try => (
            vec!["--wait-timeout".to_owned(), "0".to_owned()],
            Some("--wait-timeout 0"),
        ),
        Verb::Timed => (
            vec!["--wait-timeout".to_owned(), format!("{}ms", WAIT.as_millis())],
            Some("--wait-timeout"),
        ),
        Verb::Share => (
            vec!["--access".to_owned(), "read".to_owned()],
            Some("--access read"),
        ),
        Verb::Exceed => (
            vec!["--access".to_owned(), "write".to_owned()],
            Some("--access write"),
        ),
        Verb::Again => (Vec::new(), Some("run within run")),
        Verb::Acquire | Verb::Release => (Vec::new(), None),
    };
    let mut command = driver_commands::own(servers, lock)?;
    command.args(options).args(further).arg("--");
    Ok(Line {
        words: words(&command),
        call,
        // docs/run.md, "Exit codes".
        is_busy: |code, _| ["80", "81"].contains(&code),
    })
}

fn etcdctl(servers: &str, lock: &str, verb: Verb) -> anyhow::Result<Option<Line>> {
    if !matches!(verb, Verb::Acquire | Verb::Again | Verb::Release) {
        return Ok(None);
    }
    let mut command = Command::new(go()?.join("etcdctl"));
    command
        .args(["--endpoints", servers, "lock", "--ttl"])
        .args([&LEASE.as_secs().to_string(), lock, "--"]);
    Ok(Some(Line {
        words: words(&command),
        call: (verb == Verb::Again).then_some("lock within lock"),
        is_busy: |_, _| false,
    }))
}

fn consul_lock(servers: &str, name: &str, lock: &str, verb: Verb) -> anyhow::Result<Line> {
    let (further, call) = match verb {
        // It refuses a time of zero.
        Verb::Try => (Some("-try=1ms".to_owned()), Some("-try=1ms")),
        Verb::Timed => (Some(format!("-try={}ms", WAIT.as_millis())), Some("-try")),
        Verb::Share => (Some("-n=2".to_owned()), Some("-n=2")),
        Verb::Exceed => (Some("-n=2".to_owned()), Some("a third holder")),
        Verb::Again => (None, Some("lock within lock")),
        Verb::Acquire | Verb::Release => (None, None),
    };
    let mut command = Command::new(consul()?.join("consul"));
    command
        .args(["lock", &format!("-http-addr={servers}"), &format!("-name={name}")])
        .args(["-shell=false", "-verbose"])
        .args(further)
        .arg(lock);
    Ok(Line {
        words: words(&command),
        call,
        is_busy: |_, log| log.contains("timeout during lock acquisition"),
    })
}

fn words(command: &Command) -> Vec<OsString> {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(OsString::from)
        .collect()
}

/// One user of the lock.
struct Client {
    name: char,
    /// The programs that hold it, each within the one before.
    holding: Vec<PathBuf>,
    /// The programs that were started, killed when they are dropped.
    started: Vec<Process>,
    runs: u32,
    waits: bool,
}

impl Client {
    fn new(name: char) -> Self {
        Self {
            name,
            holding: Vec::new(),
            started: Vec::new(),
            runs: 0,
            waits: false,
        }
    }

    fn step(
        &mut self,
        machine: &Machine,
        lock: &str,
        verb: Verb,
        line: Option<Line>,
        bound: Duration,
    ) -> anyhow::Result<Done> {
        let began = BootInstant::now();
        let call = line.as_ref().and_then(|line| line.call).map(str::to_owned);
        let (outcome, what) = match line {
            None => (Outcome::NotOffered, None),
            Some(_) if self.waits => (Outcome::Waits, None),
            Some(_) if verb == Verb::Release => (self.release(bound)?, None),
            Some(line) => self.start(machine, lock, verb, &line, bound)?,
        };
        self.waits |= outcome == Outcome::Waits;
        Ok(Done {
            outcome,
            ms: BootInstant::now().saturating_since(began).as_millis() as u64,
            call,
            what,
        })
    }

    /// Ends the innermost command, and waits for the end of the program that ran it.
    fn release(&mut self, bound: Duration) -> anyhow::Result<Outcome> {
        let folder = self.holding.pop().context("nothing is held")?;
        std::fs::write(folder.join("end"), "")?;
        let has_ended = wait_for(bound, || folder.join("code").exists().then_some(()));
        Ok(has_ended.map_or(Outcome::Waits, |()| Outcome::Got))
    }

    fn start(
        &mut self,
        machine: &Machine,
        lock: &str,
        verb: Verb,
        line: &Line,
        bound: Duration,
    ) -> anyhow::Result<(Outcome, Option<String>)> {
        self.runs += 1;
        let folder = machine
            .directory()
            .join(format!("{lock}-{}-{}", self.name, self.runs));
        std::fs::create_dir(&folder)?;
        let mut whole: Vec<OsString> = ["sh", "-c", RUN, "sh"].map(OsString::from).into();
        whole.push(folder.clone().into());
        whole.extend_from_slice(&line.words);
        whole.extend(["sh", "-c", HOLD, "sh"].map(OsString::from));
        whole.push(folder.clone().into());
        match self.holding.last() {
            Some(outer) if verb == Verb::Again => write_in_one_step(&outer.join("inner"), &quoted(&whole))?,
            _ => {
                let mut command = Command::new(&whole[0]);
                command.args(&whole[1..]);
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null());
                self.started.push(machine.host.spawn("probe", command)?);
            }
        }
        let outcome = wait_for(bound, || look(&folder, line));
        if matches!(outcome, Some((Outcome::Got, _))) {
            self.holding.push(folder);
        }
        Ok(outcome.unwrap_or((Outcome::Waits, None)))
    }
}

/// What a program has come to, if anything.
fn look(folder: &Path, line: &Line) -> Option<(Outcome, Option<String>)> {
    if folder.join("held").exists() {
        return Some((Outcome::Got, None));
    }
    let code = std::fs::read_to_string(folder.join("code")).ok()?;
    let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
    let code = code.trim();
    if (line.is_busy)(code, &log) {
        return Some((Outcome::Busy, None));
    }
    let last = log.lines().last().unwrap_or_default();
    Some((Outcome::Refused, Some(format!("code {code}: {last}"))))
}

/// The line of a shell for these words.
fn quoted(words: &[OsString]) -> String {
    let quote = |word: &OsString| format!("'{}'", word.to_string_lossy().replace('\'', "'\\''"));
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

fn write_in_one_step(file: &Path, text: &str) -> std::io::Result<()> {
    let beside = file.with_extension("new");
    std::fs::write(&beside, text)?;
    std::fs::rename(beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_program_within_a_program_stay_whole() {
        let words = ["echo", "it's", "a b", "$HOME"].map(OsString::from);
        let output = Command::new("sh").args(["-c", &quoted(&words)]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "it's a b $HOME\n");
    }
}
