//! Asks TLC which traces are behaviours of the specification.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use lockkeeper_testbed::binaries;

use crate::times;
use crate::trace::{Event, Trace};

/// The most traces that one run of TLC takes. It reads them as one module, of some hundred lines each.
const AT_ONCE: usize = 50;

/// By how much a recorded moment may differ from the one that the task had read: both constants of the specification
/// are rounded by it in favour of the trace. It is longer than what a record adds to a moment to keep moments apart.
const TOLERANCE: Duration = Duration::from_millis(1);

/// What TLC found about one trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is a behaviour of the specification.
    Accepted,
    /// No behaviour has this event, the index of which this is, after those before it.
    Rejected(usize),
}

/// TLC, and the specification.
#[derive(Clone, Debug)]
pub struct Tlc {
    jar: PathBuf,
    specification: PathBuf,
}

impl Tlc {
    /// As `make` fetches it.
    ///
    /// # Errors
    /// What is missing.
    pub fn find() -> anyhow::Result<Self> {
        let home = std::env::var_os("HOME").context("HOME is not set")?;
        let jar = Path::new(&home).join(".cache/lockkeeper/tla/tla2tools.jar");
        ensure!(
            jar.is_file(),
            "{} is missing; `make conformance` and `make test` fetch it",
            jar.display()
        );
        let specification = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lock/spec");
        Ok(Self { jar, specification })
    }

    /// The verdict on each trace, in their order.
    ///
    /// # Errors
    /// When TLC fails, or finds that the specification violates one of its own invariants.
    pub fn judge(&self, traces: &[Trace]) -> anyhow::Result<Vec<Verdict>> {
        // Traces of a size together: the specification has as many contenders as the largest.
        let mut order: Vec<usize> = (0..traces.len()).collect();
        order.sort_by_key(|&index| traces[index].contenders);
        let threads = std::thread::available_parallelism()?.get();
        let size = traces.len().div_ceil(threads).clamp(1, AT_ONCE);
        let batches: Vec<_> = order.chunks(size).collect();
        let verdicts = Mutex::new(vec![None; traces.len()]);
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let work = || -> anyhow::Result<()> {
                while let Some(batch) = batches.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = self.judge_batch(batch.iter().map(|&index| &traces[index]).collect())?;
                    let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
                    for (&index, verdict) in batch.iter().zip(found) {
                        verdicts[index] = Some(verdict);
                    }
                }
                Ok(())
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("no panic"))
        })?;
        let verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
        verdicts
            .into_iter()
            .map(|verdict| verdict.context("a trace without a verdict"))
            .collect()
    }

    fn judge_batch(&self, traces: Vec<&Trace>) -> anyhow::Result<Vec<Verdict>> {
        let out = self.run(&traces)?;
        let accepted: BTreeSet<usize> = out.lines().filter_map(accepted).collect();
        let reached = |index: usize| {
            let reached = out.lines().filter_map(|line| reached(line, index)).max();
            reached.with_context(|| format!("TLC says nothing of a trace:\n{out}"))
        };
        (0..traces.len())
            .map(|index| match accepted.contains(&(index + 1)) {
                true => Ok(Verdict::Accepted),
                false => Ok(Verdict::Rejected(reached(index)?)),
            })
            .collect()
    }

    /// What TLC prints.
    fn run(&self, traces: &[&Trace]) -> anyhow::Result<String> {
        let folder = tempfile::Builder::new()
            .prefix("traces-")
            .tempdir_in(binaries::target_directory()?)?;
        for module in ["TakeoverLease.tla", "TraceTakeover.tla"] {
            fs::copy(self.specification.join(module), folder.path().join(module))?;
        }
        fs::write(folder.path().join("Recorded.tla"), module(traces))?;
        fs::write(folder.path().join("Recorded.cfg"), configuration(traces))?;
        let output = Command::new("java")
            .args(["-Xmx2g", "-XX:+UseSerialGC"])
            // Where TLC unpacks its modules.
            .arg(format!("-Djava.io.tmpdir={}", folder.path().display()))
            .arg("-cp")
            .arg(&self.jar)
            .args(["tlc2.TLC", "-nowarning", "-deadlock", "-workers", "1"])
            .args(["-metadir", "states", "-config", "Recorded.cfg", "TraceTakeover"])
            .current_dir(folder.path())
            .output()
            .context("java does not run")?;
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        if !out.contains("Model checking completed. No error has been found.") {
            let kept = folder.keep();
            bail!("TLC found an error, see {}:\n{out}", kept.display());
        }
        Ok(out)
    }
}

fn accepted(line: &str) -> Option<usize> {
    line.strip_prefix("\"accepted: ")?.strip_suffix('"')?.parse().ok()
}

/// `"trace 3 up to event 17"` of the trace with this index.
fn reached(line: &str, index: usize) -> Option<usize> {
    let (trace, event) = line
        .strip_prefix("\"trace ")?
        .strip_suffix('"')?
        .split_once(" up to event ")?;
    (trace.parse() == Ok(index + 1)).then_some(event.parse().ok()?)
}

/// The traces as a module.
fn module(traces: &[&Trace]) -> String {
    let mut text = "---- MODULE Recorded ----\nTraces == <<\n".to_owned();
    for (index, trace) in traces.iter().enumerate() {
        text += if index == 0 { "<<" } else { ",\n<<" };
        for (index, event) in trace.events.iter().enumerate() {
            text += if index == 0 { "" } else { ",\n" };
            let Event {
                at,
                kind,
                who,
                whom,
                number,
            } = event;
            let _ = write!(text, "<<{at}, \"{}\", {who}, {whom}, {number}>>", kind.name());
        }
        text += ">>";
    }
    text + "\n>>\n====\n"
}

/// One tick of the specification is a microsecond. L is what the task itself counts: the time between the sending of a
/// renewal and its deadline.
fn configuration(traces: &[&Trace]) -> String {
    let contenders = traces.iter().map(|trace| trace.contenders).max().unwrap_or(1);
    let lease = times::until_the_deadline() + TOLERANCE;
    let wait = times::wait() - TOLERANCE;
    format!(
        "SPECIFICATION SpecTrace\nINVARIANTS NeverMoreHolders TokensGrow\nCONSTRAINT Followed\nCONSTANTS\nN = {}\n\
         LeaseDuration = {}\nWait = {}\nRates = {{1}}\nTwoWrites = {{}}\nRoom <- AnyRoom\nUseless <- AnyAge\nSessionTimeout = 0\n\
         MaxHolders = 1\nForeign = {{}}\nOptions = {{\"behind a waiter\"}}\nWithout = {{}}\n",
        contenders.max(1),
        lease.as_micros(),
        wait.as_micros(),
    )
}
