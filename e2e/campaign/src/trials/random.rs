//! Random faults of servers and workers at the same time, by plans from a seed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_judge::checker::{Rule, check_with_pauses};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Worker;
use lockkeeper_product::worker::Options;
use lockkeeper_testbed::faults;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, Host};
use rustix::process::Pid;

use crate::context::Context;
use crate::figures::{Figures, Violations};
use crate::fixture::{BOUND, Fixture};
use crate::random_faults::{Event, Plan, Shape, Workers};
use crate::sample::Sample;
use crate::spares::Spares;
use crate::times::SESSION_TIMEOUT;
use crate::witness::Witness;

/// Length of the plan of one round, in a test and in a campaign by minutes.
const SHORT: Duration = Duration::from_secs(40);
const LONG: Duration = Duration::from_secs(180);

/// A program that wrote nothing for this time, a hundred times its period, was stopped: by a fault or by
/// `--on-loss pause`.
const SILENCE: Duration = Duration::from_millis(500);

/// The workers in the queue of a round.
#[derive(Clone, Copy)]
enum Crowd {
    Exclusive,
    Semaphore,
    ReadersAndWriters,
}

const CROWDS: [(Crowd, &str, Rule); 3] = [
    (Crowd::Exclusive, "exclusive", Rule::Exclusive),
    (Crowd::Semaphore, "2 of 4", Rule::AtMost(2)),
    (Crowd::ReadersAndWriters, "readers and writers", Rule::ReadWrite),
];

/// One plan of 40 s per round, or plans of three minutes for the given number of minutes.
pub(super) fn random(context: &mut Context<'_>) -> anyhow::Result<Figures> {
    let length = if context.minutes.is_some() { LONG } else { SHORT };
    let rounds = context.rounds_of(length);
    let mut fixture = Fixture::new("random")?.with_lease(context.lease);
    let mut violations = Violations::default();
    let mut gaps = Sample::default();
    let (mut holds, mut struck, mut restarts) = (0, 0, 0);
    let mut spares = Spares::default();
    let first = context.random.usize(..CROWDS.len());
    for number in 0..rounds as usize {
        let (crowd, name, rule) = CROWDS[(first + number) % CROWDS.len()];
        let round = fixture.begin()?;
        let mut crew = Vec::new();
        for (index, part) in crowd.parts(&mut context.random).into_iter().enumerate() {
            let plain = fixture.options(&round, &format!("worker-{index}"), &round.server_names())?;
            let options = plain
                .with_run(&["--restart", "always"])
                .with_run(&part.run)
                .with_recorder(&part.recorder);
            crew.push(Member::start(&fixture.ensemble, options, part.may_stop_program)?);
        }
        let crew = Crew(crew);
        let shape = Shape {
            workers: crew.0.len(),
            length,
            // Longer than a stated L, too: T is twice as long.
            longest_fault: crew.session_timeout().max(SESSION_TIMEOUT * 2),
        };
        let plan = Plan::generate(context.random.u64(..), &shape);
        context.say(format!(
            "round {}: {name}, {} workers. {plan}",
            round.number,
            crew.0.len()
        ))?;
        let mut witness = Witness::new(&fixture.ensemble, &round.root);
        let (outcome, runs_again) = witness.during(|| {
            let outcome = carry_out(context, &fixture.ensemble, &crew, &plan)?;
            let over = BootInstant::now();
            let runs_again = wait_for(BOUND, || {
                crew.keep_up(&fixture.ensemble).ok()?;
                let records = crew.records().ok()?;
                records.iter().any(|record| record.at > over).then_some(())
            });
            anyhow::Ok((outcome, runs_again))
        })?;
        witness.keep_up();
        struck += outcome.struck;
        restarts += outcome.restarts;
        if runs_again.is_none() {
            violations.add(format!("round {}: no application runs any more", round.number));
        }
        let report = check_with_pauses(&crew.records()?, rule, SILENCE);
        if !report.is_clean() {
            violations.add(format!(
                "round {}: {} overlaps or tokens out of order",
                round.number,
                report.violations.len()
            ));
        }
        if !report.is_clean() || runs_again.is_none() {
            context.say(&report)?;
            for member in &crew.0 {
                let worker = member.worker();
                context.say(format!("--- log of {}:\n{}", worker.options().name, worker.log()))?;
            }
        }
        let timing = round.timing(&crew.0[0].worker());
        witness.judge(
            &report,
            (round.number, true),
            &timing,
            &mut spares,
            &mut violations,
        );
        holds += report.holds.len();
        report
            .gaps
            .iter()
            .for_each(|(_, gap)| gaps.add(gap.as_secs_f64()));
        context.say(format!(
            "round {}: {} holds, {} violations",
            round.number,
            report.holds.len(),
            report.violations.len()
        ))?;
    }
    let mut figures = Figures::default();
    figures.row(
        format!(
            "random faults, {rounds} plans of {} s: no overlap, tokens in order",
            length.as_secs()
        ),
        format!("{struck} faults, {holds} holds, {restarts} workers started again"),
    );
    figures.row("time without a holder", gaps.to_string());
    spares.tell_of(holds, &mut figures);
    violations.finish(figures)
}

/// The settings of one worker of a crowd.
struct Part {
    run: Vec<&'static str>,
    recorder: Vec<&'static str>,
    /// Whether a fault may stop its program: it may not if the guard pauses the program at a loss or a
    /// suspicion, since the end of the fault would resume it too.
    may_stop_program: bool,
}

impl Part {
    fn new(run: &[&'static str], recorder: &[&'static str]) -> Self {
        Self {
            run: run.to_vec(),
            recorder: recorder.to_vec(),
            may_stop_program: !run.contains(&"pause"),
        }
    }
}

impl Crowd {
    fn parts(self, random: &mut Rng) -> Vec<Part> {
        let mut hold = || -> Vec<&'static str> {
            match random.u32(0..3) {
                0 => vec!["--hold", "2s"],
                1 => vec!["--hold", "5s", "--fork", "1"],
                _ => vec!["--ignore-sigterm", "--hold", "4s"],
            }
        };
        match self {
            Self::Exclusive => {
                let mut all = vec![
                    Part::new(&[], &hold()),
                    Part::new(&["--on-suspect", "pause"], &hold()),
                    Part::new(&["--on-loss", "pause"], &["--hold", "6s"]),
                    Part::new(&["--on-exit", "hold"], &["--hold", "1s", "--fork", "1"]),
                    Part::new(&["--lock-delay", "500ms"], &hold()),
                ];
                random.shuffle(&mut all);
                all.truncate(random.usize(3..=5));
                all
            }
            Self::Semaphore => (0..4)
                .map(|_| Part::new(&["--max-holders", "2"], &hold()))
                .collect(),
            Self::ReadersAndWriters => ["read", "read", "write", "write"]
                .into_iter()
                .map(|access| {
                    let mut recorder = hold();
                    recorder.extend((access == "read").then_some("--read"));
                    Part::new(&["--access", access], &recorder)
                })
                .collect(),
        }
    }
}

/// A worker that is started again when it has ended.
struct Member {
    host: Host,
    may_stop_program: bool,
    worker: Mutex<Worker>,
}

struct Crew(Vec<Member>);

impl Member {
    fn start(ensemble: &Ensemble, options: Options, may_stop_program: bool) -> anyhow::Result<Self> {
        Ok(Self {
            host: options.host.clone(),
            may_stop_program,
            worker: Mutex::new(Worker::start(ensemble, options)?),
        })
    }

    fn worker(&self) -> MutexGuard<'_, Worker> {
        self.worker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Crew {
    /// The longest T of its workers.
    fn session_timeout(&self) -> Duration {
        let each = self
            .0
            .iter()
            .map(|member| member.worker().options().session_timeout);
        each.max().unwrap_or_default()
    }

    /// Starts the workers that have ended; returns how many.
    fn keep_up(&self, ensemble: &Ensemble) -> anyhow::Result<usize> {
        let mut started = 0;
        for member in &self.0 {
            let mut worker = member.worker();
            if !worker.guard().is_running() {
                let options = worker.options().clone();
                *worker = Worker::start(ensemble, options)?;
                started += 1;
            }
        }
        Ok(started)
    }

    fn records(&self) -> anyhow::Result<Vec<lockkeeper_judge::record::Record>> {
        let mut records = Vec::new();
        for member in &self.0 {
            records.extend(member.worker().records()?);
        }
        Ok(records)
    }
}

impl Workers for Crew {
    fn host(&self, worker: usize) -> Host {
        self.0[worker].host.clone()
    }

    /// The keeper, and the program if that may be stopped. Not the guard: see [`kill_guards`].
    fn processes(&self, worker: usize) -> Vec<Pid> {
        let member = &self.0[worker];
        let worker = member.worker();
        let program = worker.program_pid().filter(|_| member.may_stop_program);
        worker.keeper_pid().into_iter().chain(program).collect()
    }
}

struct Outcome {
    struck: usize,
    restarts: usize,
}

fn carry_out(
    context: &mut Context<'_>,
    ensemble: &Ensemble,
    crew: &Crew,
    plan: &Plan,
) -> anyhow::Result<Outcome> {
    let over = AtomicBool::new(false);
    let (events, told) = mpsc::channel();
    let mut random = context.random.fork();
    let restarts = std::thread::scope(|scope| {
        let supervising = scope.spawn(|| {
            let mut restarts = 0;
            while !over.load(Ordering::Relaxed) {
                restarts += crew.keep_up(ensemble)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            anyhow::Ok(restarts)
        });
        let killing = scope.spawn({
            let events = events.clone();
            let over = &over;
            move || kill_guards(crew, &mut random, over, &events)
        });
        let ran = plan.run(ensemble, crew, &over, &|event| {
            let _ = events.send(event);
        });
        over.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a thread of the trial panicked");
        killing.join().map_err(panicked)?;
        let restarts = supervising.join().map_err(panicked)?;
        ran?;
        restarts
    })?;
    drop(events);
    let mut struck = 0;
    for event in told {
        match event {
            Event::Struck { .. } => struck += 1,
            Event::Skipped { label, reason } => context.say(format!("  skipped: {label}: {reason}"))?,
            Event::Over { .. } => {}
        }
    }
    Ok(Outcome { struck, restarts })
}

/// Kills a guard now and then. It never stops one (SIGSTOP), because the plan stops keepers. While guard and keeper are both
/// stopped, no process stops the application (docs/safety.md, "A guard that is stopped").
fn kill_guards(crew: &Crew, random: &mut Rng, over: &AtomicBool, events: &mpsc::Sender<Event>) {
    loop {
        let pause = Duration::from_millis(random.u64(5_000..25_000));
        if wait_for(pause, || over.load(Ordering::Relaxed).then_some(())).is_some() {
            return;
        }
        let member = random.usize(..crew.0.len());
        let at = BootInstant::now();
        if faults::kill(crew.0[member].worker().guard_pid()).is_ok() {
            let label = format!("guard of worker {member} killed");
            let _ = events.send(Event::Struck { label, at });
        }
    }
}
