//! Servers, workers and their state. Every wait reads the workers' records, draws the timeline and checks for
//! the user's Ctrl-C.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use lockkeeper_judge::checker::NodeLife;
use lockkeeper_judge::record::{Moment, Record, Tail};
use lockkeeper_judge::timeline::{Mark, MarkKind, Timeline};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::binaries;
use lockkeeper_product::worker::{Options, Worker};
use lockkeeper_testbed::ensemble::Ensemble;

use crate::console::Console;
use crate::interrupted::Interrupted;
use crate::run::{BOUND, Reason, Run};
use crate::waiting::{POLL, Watched};

pub(crate) const LOCK: &str = "/demo/report";
/// A program writes every 5 ms, so one that has not written for this time has ended.
pub(crate) const SILENCE: Duration = Duration::from_millis(150);
/// Time to read a paragraph.
const READING: Duration = Duration::from_millis(3000);

/// Everything on the stage. Fields are dropped in this order: workers before their servers.
#[derive(Debug)]
pub(crate) struct Stage {
    players: Vec<Player>,
    watch: Option<DeletionWatch>,
    pub(crate) ensemble: Ensemble,
    pub(crate) console: Console,
    pub(crate) timeline: Timeline,
    interrupted: Arc<AtomicBool>,
    pub(crate) records: Vec<Record>,
    /// The runs, by token.
    pub(crate) runs: BTreeMap<i64, Run>,
    /// Why the lock moved, by the token of its former holder.
    pub(crate) reasons: BTreeMap<i64, Reason>,
    lives: Vec<NodeLife>,
}

/// A worker and how far its record has been read.
#[derive(Debug)]
struct Player {
    worker: Worker,
    tail: Tail,
}

impl Stage {
    /// Starts the servers, and no workers yet.
    pub(crate) fn new(
        ensemble: Ensemble,
        console: Console,
        interrupted: Arc<AtomicBool>,
        start: BootInstant,
    ) -> Self {
        Self {
            players: Vec::new(),
            watch: None,
            ensemble,
            console,
            timeline: Timeline::new(start, []),
            interrupted,
            records: Vec::new(),
            runs: BTreeMap::new(),
            reasons: BTreeMap::new(),
            lives: Vec::new(),
        }
    }

    // --- words ---

    /// Announces an act, and leaves time to read it.
    pub(crate) fn announce(&mut self, title: &str, text: &str) -> anyhow::Result<()> {
        self.console.title(title)?;
        self.console.line(text)?;
        self.pause(READING)
    }

    /// Prints an event and its moment.
    pub(crate) fn tell(&mut self, at: BootInstant, text: &str) -> anyhow::Result<()> {
        Ok(self
            .console
            .fact(at.saturating_since(self.timeline.start()), text)?)
    }

    /// Marks a moment in the timeline.
    pub(crate) fn note(&mut self, label: String, at: BootInstant) {
        self.timeline.mark(Mark {
            kind: MarkKind::Note,
            label,
            from: at,
            to: Some(at),
        });
    }

    /// Marks the begin of a fault; [`Timeline::unmark`] marks its end.
    pub(crate) fn fault(&mut self, label: &str, at: BootInstant) {
        self.timeline.mark(Mark {
            kind: MarkKind::Fault,
            label: label.to_owned(),
            from: at,
            to: None,
        });
    }

    // --- time ---

    /// Waits, so that users can read.
    pub(crate) fn pause(&mut self, length: Duration) -> anyhow::Result<()> {
        let end = BootInstant::now() + length;
        while BootInstant::now() < end {
            self.look()?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn read(&mut self) -> anyhow::Result<()> {
        for player in &mut self.players {
            let name = player.worker.options().name.clone();
            for mut record in player.tail.read()? {
                // A daemon of the program belongs to the same worker.
                if let Moment::Begin { name: recorded, .. } = &mut record.moment {
                    recorded.clone_from(&name);
                }
                self.timeline.record(&record);
                let run = self.runs.entry(record.token).or_insert_with(|| Run {
                    token: record.token,
                    name: name.clone(),
                    begin: record.at,
                    last: record.at,
                    pids: Vec::new(),
                });
                run.last = run.last.max(record.at);
                if !run.pids.contains(&record.pid) {
                    run.pids.push(record.pid);
                }
                self.records.push(record);
            }
        }
        Ok(())
    }

    // --- workers ---

    /// Starts a worker of this name, or starts it again: then it queues at the end.
    pub(crate) fn start_worker(&mut self, options: Options) -> anyhow::Result<()> {
        let worker = Worker::start(&self.ensemble, options)?;
        let name = &worker.options().name;
        self.timeline.add_worker(name);
        if let Some(player) = self.players.iter_mut().find(|player| player.name() == name) {
            player.worker = worker;
        } else {
            let tail = Tail::new(worker.record_file());
            self.players.push(Player { worker, tail });
        }
        Ok(())
    }

    /// Options of a worker that restarts its program whenever it holds the lock.
    ///
    /// An eighth of T = 4 s, the default, is as long as half a tick of 1 s: too few renewals to detect that a
    /// server is cut off, and to take the session to another one, before the guard has to stop the program. A
    /// sixteenth leaves a second for that.
    pub(crate) fn worker_options(&self, name: &str) -> anyhow::Result<Options> {
        let socket = self.socket(name);
        let socket = socket
            .to_str()
            .context("the temporary directory's name is not UTF-8")?;
        Ok(Options::new(&self.ensemble, name, LOCK)?.with_run(&[
            "--restart",
            "always",
            "--socket",
            socket,
            "--renew-interval",
            "250ms",
        ]))
    }

    pub(crate) fn worker(&mut self, name: &str) -> &mut Worker {
        let player = self.players.iter_mut().find(|player| player.name() == name);
        &mut player.expect("only workers that were started are named").worker
    }

    /// Runs `lockkeeper COMMAND --socket …` for a worker, and waits for its success.
    pub(crate) fn ask_keeper(&mut self, name: &str, command: &[&str]) -> anyhow::Result<()> {
        let what = format!("lockkeeper {} for {name}", command.join(" "));
        let complaint = self.ensemble.directory().join("complaint");
        let mut client = Command::new(binaries::lockkeeper()?);
        client
            .args(command)
            .arg("--socket")
            .arg(self.socket(name))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&complaint)?);
        let mut client = self.ensemble.observer().spawn(&what, client)?;
        let status = self.wait(&what, |_| client.wait(Duration::ZERO).transpose())??;
        if !status.success() {
            let complaint = fs::read_to_string(complaint).unwrap_or_default();
            bail!("{what} failed: {}", complaint.trim());
        }
        Ok(())
    }

    fn socket(&self, name: &str) -> std::path::PathBuf {
        self.ensemble.directory().join(format!("{name}.sock"))
    }

    /// Waits until a worker runs, and returns which.
    pub(crate) fn holder(&mut self) -> anyhow::Result<Run> {
        self.wait("a worker runs", |stage| {
            let run = stage.runs.values().next_back()?;
            (BootInstant::now().saturating_since(run.last) < SILENCE).then(|| run.clone())
        })
    }

    /// Waits until a worker runs after this one; returns which, and for how long none ran.
    pub(crate) fn next_after(&mut self, token: i64, reason: Reason) -> anyhow::Result<(Run, Duration)> {
        self.reasons.insert(token, reason);
        let next = self.wait("the next worker runs", |stage| {
            stage.runs.range(token + 1..).next().map(|(_, run)| run.clone())
        })?;
        let gap = next.begin.saturating_since(self.runs[&token].last);
        Ok((next, gap))
    }

    /// The server that a worker's keeper is connected to, as the servers report it, other than `except`. This
    /// needs a host with an address of its own.
    pub(crate) fn server_of(&mut self, name: &str, except: Option<usize>) -> Option<usize> {
        let client = format!("/{}:", self.worker(name).options().host.address());
        (0..self.ensemble.len())
            .filter(|&server| Some(server) != except && self.ensemble.pid(server).is_some())
            .find(|&server| {
                // A server without a leader accepts connections, too, but confirms no session over them.
                let confirmed = |line: &str| line.contains(&client) && line.contains("sid=");
                let connections = self.ensemble.ask(server, "cons");
                connections.is_some_and(|connections| connections.lines().any(confirmed))
            })
    }

    // --- the leader's view ---

    /// Watches the lock at the present leader from now on.
    pub(crate) fn watch_anew(&mut self) -> anyhow::Result<()> {
        self.end_watch();
        self.watch = Some(DeletionWatch::begin(&self.ensemble, LOCK)?);
        Ok(())
    }

    /// Waits until the leader has deleted the node of this token.
    pub(crate) fn deletion(&mut self, token: i64) -> anyhow::Result<BootInstant> {
        self.wait("the leader deletes the node", |stage| {
            stage.watch.as_ref()?.wait_for_deletion(token, Duration::ZERO)
        })
    }

    /// The lives of all nodes whose deletion by a leader was seen.
    pub(crate) fn lives(&mut self) -> &[NodeLife] {
        self.end_watch();
        &self.lives
    }

    fn end_watch(&mut self) {
        let Some(watch) = self.watch.take() else { return };
        self.lives.extend(watch.deletions());
    }

    // --- the end ---

    /// Asks all workers to end, the waiting ones first, and waits until they have ended.
    pub(crate) fn end_workers(&mut self) -> anyhow::Result<()> {
        let holder = self.holder()?;
        self.reasons.insert(holder.token, Reason::Over);
        self.players.sort_by_key(|player| player.name() == holder.name);
        for place in 0..self.players.len() {
            let name = self.players[place].name().to_owned();
            self.worker(&name).guard().signal(rustix::process::Signal::TERM);
            self.wait(&format!("{name} ends"), |stage| {
                (!stage.worker(&name).guard().is_running()).then_some(())
            })?;
        }
        self.read()
    }

    /// Copies records and logs, before they vanish with the servers' directory.
    pub(crate) fn keep_files(&self, directory: &Path) -> anyhow::Result<()> {
        for entry in fs::read_dir(self.ensemble.directory())? {
            let path = entry?.path();
            let wanted = path
                .extension()
                .is_some_and(|kind| kind == "record" || kind == "log");
            if let Some(name) = path.file_name().filter(|_| wanted) {
                fs::copy(&path, directory.join(name))
                    .with_context(|| format!("cannot copy {}", path.display()))?;
            }
        }
        for server in 0..self.ensemble.len() {
            let file = format!("{}.log", self.ensemble.server(server).name().replace(' ', "-"));
            fs::write(directory.join(file), self.ensemble.log(server))?;
        }
        Ok(())
    }
}

impl Watched for Stage {
    const BOUND: Duration = BOUND;

    fn look(&mut self) -> anyhow::Result<()> {
        Interrupted::check(&self.interrupted)?;
        self.read()?;
        Ok(self.console.show(&self.timeline)?)
    }
}

impl Player {
    fn name(&self) -> &str {
        &self.worker.options().name
    }
}
