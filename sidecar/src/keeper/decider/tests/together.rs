//! The keeper's decisions together with the guard's own state machine, a lock and an application
//! that do whatever they may do, in any order, with delays and freezes: thousands of histories.
//!
//! What has to be true of each is asserted where it happens, in [`Round`].

mod sides;

use std::collections::VecDeque;

use fastrand::Rng;

use super::*;
use crate::guard::schedule::{Action, Event, Mode, Schedule, Sight, Sweep};

const HISTORIES: u64 = 10_000;
const STEPS: u32 = 120;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tree {
    Absent,
    Runs,
    Stands,
}

struct Round {
    rng: Rng,
    now: u64,
    policy: Policy,
    decider: Decider,
    is_over: bool,
    // The lock, as its task would have it.
    status: LockStatus,
    asked: Option<Ask>,
    next_token: i64,
    lease_ends: Vec<(FencingToken, BootInstant)>,
    // The guard and its tree.
    schedule: Schedule,
    /// The keeper hears of the end of the guard's process.
    is_watched: bool,
    /// Another guard took the place of this one.
    is_displaced: bool,
    was_displaced: bool,
    is_connected: bool,
    is_frozen: bool,
    resists: bool,
    tree: Tree,
    tree_token: Option<FencingToken>,
    has_lease_file: bool,
    to_guard: VecDeque<ToGuard>,
    to_keeper: VecDeque<FromGuard>,
    history: Vec<String>,
}

impl Round {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let kind = rng.choice([Kind::Run, Kind::Wrap, Kind::Signal]).expect("one");
        let policy = Policy {
            on_loss: rng.choice([OnLoss::Kill, OnLoss::Pause]).expect("one"),
            on_suspect: rng.choice([OnSuspect::Continue, OnSuspect::Pause]).expect("one"),
            on_exit: rng.choice([OnExit::Release, OnExit::Hold]).expect("one"),
            restart: if kind == Kind::Run {
                rng.choice([Restart::Always, Restart::Never]).expect("one")
            } else {
                Restart::Always
            },
            lock_delay: Duration::from_secs(rng.u64(0..2)),
            ..policy(kind)
        };
        let mut round = Self {
            rng,
            now: 0,
            policy,
            decider: Decider::new(policy, ms(0)),
            is_over: false,
            status: LockStatus::new(),
            asked: None,
            next_token: 1,
            lease_ends: Vec::new(),
            schedule: Self::schedule(kind),
            is_watched: false,
            is_displaced: false,
            was_displaced: false,
            tree_token: None,
            is_connected: false,
            is_frozen: false,
            resists: false,
            tree: Tree::Absent,
            has_lease_file: false,
            to_guard: VecDeque::new(),
            to_keeper: VecDeque::new(),
            history: vec![format!("{policy:?}")],
        };
        round.is_watched = round.rng.bool();
        round.connect();
        round
    }

    fn schedule(kind: Kind) -> Schedule {
        let mode = match kind {
            Kind::Run => Mode::Subreaper,
            Kind::Wrap => Mode::Pid1,
            Kind::Signal => Mode::Container,
        };
        Schedule::new(mode, kind == Kind::Wrap, ms(0))
    }

    // === the keeper ===

    fn decide(&mut self) {
        if self.is_over {
            return;
        }
        for act in self.decider.decide(ms(self.now)) {
            if !matches!(act, Act::Tell(ToGuard::Grant(Grant { start: false, .. }))) {
                self.history.push(format!("{} keeper: {act:?}", self.now));
            }
            self.act(act);
        }
        if !self.is_over {
            assert_eq!(
                self.decider.decide(ms(self.now)),
                [],
                "nothing has happened since"
            );
        }
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Tell(frame) => {
                if let ToGuard::Grant(grant) = frame {
                    self.check_grant(&grant);
                }
                self.to_guard.push_back(frame);
            }
            Act::Ask(ask) => {
                if ask == Ask::Release {
                    // What a guard of which nothing was known any more left behind runs under an older token, and its
                    // session was over before this one held.
                    let is_older = self.was_displaced && self.tree_token != self.status.token;
                    assert!(
                        self.tree != Tree::Runs || is_older,
                        "released while the application runs"
                    );
                    self.status.state = LockState::Releasing;
                }
                self.asked = Some(ask);
            }
            Act::Resume(_) => unreachable!("this guard announces no ticket"),
            Act::Abandon => {
                assert!(
                    !(self.is_watched && self.policy.kind == Kind::Wrap && self.has_guard_in_doubt()),
                    "abandoned though the guard's end would be told"
                );
                self.asked = None;
                self.status = LockStatus::new();
            }
            Act::End(_) => {
                self.is_over = true;
                // In a pod a keeper may end without having seen its guard; it released nothing then.
                if self.policy.kind != Kind::Wrap {
                    assert_ne!(self.tree, Tree::Runs, "ended while the application runs");
                }
                assert!(self.decider.lease_file.is_none(), "a lease file is left behind");
            }
            Act::KillGuard => {
                assert_ne!(self.policy.kind, Kind::Wrap);
                // The anchor ends what is left; the keeper ends, and leaves the lock to expire.
                self.tree = Tree::Absent;
                self.is_over = true;
            }
            Act::WriteLease(_) => self.has_lease_file = true,
            Act::RemoveLease => self.has_lease_file = false,
            Act::AnswerStepDown => {}
        }
    }

    fn has_guard_in_doubt(&self) -> bool {
        matches!(self.decider.application.state(), App::OutOfSight { .. })
    }

    fn check_grant(&self, grant: &Grant) {
        let ends = self.lease_ends.iter().filter(|(token, _)| *token == grant.token);
        let end = ends
            .map(|(_, end)| *end)
            .max()
            .expect("a grant for a token that was held");
        let now = ms(self.now);
        let is_to_act_now = grant.kill_at == now && !grant.start;
        assert!(is_to_act_now || grant.kill_at < end, "a grant beyond the lease");
        assert!(is_to_act_now || now < grant.kill_at, "a grant for the past");
        assert!(
            !grant.start || now < grant.term_at,
            "started to be stopped at once"
        );
    }

    // === time and chance ===

    fn pass(&mut self, millis: u64) {
        let until = self.now + millis;
        while !self.is_frozen && !self.is_over {
            let Some(wake) = self.schedule.wake_at().filter(|wake| *wake <= ms(until)) else {
                break;
            };
            self.now = self.now.max(wake.as_nanos().div_ceil(1_000_000));
            self.guard(Event::Tick);
        }
        self.now = until;
        if self
            .status
            .deadline()
            .is_some_and(|deadline| deadline <= ms(until))
        {
            self.lose(LossReason::DeadlineReached);
        }
    }

    fn something_happens(&mut self) {
        let is_wrap = self.policy.kind == Kind::Wrap;
        match self.rng.u32(0..48) {
            0..4 => self.pass(self.rng.clone().u64(0..200)),
            4..6 => self.pass(self.rng.clone().u64(0..4000)),
            6 => self.pass(12_000),
            7..14 => self.read_guard(),
            14..20 => self.read_keeper(),
            20..24 => self.answer(true),
            24..27 => self.hold(),
            27..30 => self.renew(),
            30..33 => self.publish(),
            33 if self.status.state == LockState::Held => self.status.state = LockState::Suspended,
            34 => {
                let reason = self.rng.choice(LossReason::ALL).expect("one");
                self.lose(reason);
            }
            35 => {
                self.status.yield_requested = self.status.is_held(ms(self.now)) && self.rng.bool();
            }
            36 => drop(self.decider.step_down_wanted()),
            37 if self.tree == Tree::Runs && !self.is_frozen => {
                self.tree = Tree::Absent;
                let ended = self.ended(3);
                self.guard(ended);
            }
            38 => self.is_frozen = !self.is_frozen,
            39 => self.resists = self.rng.u8(0..4) == 0,
            40 if is_wrap => self.disconnect(),
            41 if is_wrap => self.connect(),
            42 => match self.rng.u8(0..8) {
                0 => self.refuse(),
                1 => self.answer(false),
                2 if !self.is_frozen => self.guard(Event::Signal {
                    signo: 15,
                    to_group: false,
                }),
                3 if is_wrap => self.decider.end_wanted(0),
                4 if is_wrap => self.another_keeper(),
                5 if is_wrap => self.guard_exits(),
                _ => {}
            },
            // SIGCONT from another process: the guard sees it within 50 ms and kills it.
            43 if self.tree == Tree::Stands && !self.is_frozen && !self.resists => {
                self.tree = Tree::Runs;
                self.pass(60);
            }
            44..46 => self.kubelet(),
            46 if is_wrap => self.another_guard(),
            47 => self.shorten(),
            _ => {}
        }
        self.decide();
        self.check_the_guard();
    }

    fn another_keeper(&mut self) {
        self.disconnect();
        self.is_displaced = false;
        self.status = LockStatus::new();
        self.asked = None;
        self.decider = Decider::new(self.policy, ms(self.now));
    }

    /// From now on everything works: the application has to run, or the keeper to end.
    fn settle(&mut self) -> bool {
        (self.is_frozen, self.resists) = (false, false);
        for _ in 0..1200 {
            self.pass(50);
            self.decide();
            if self.is_over {
                return true;
            }
            self.connect();
            self.answer(true);
            self.status.yield_requested = false;
            self.hold();
            self.renew();
            self.publish();
            while !self.to_guard.is_empty() || !self.to_keeper.is_empty() {
                self.read_keeper();
                self.read_guard();
            }
            self.kubelet();
            let is_running = self.tree == Tree::Runs
                && matches!(self.decider.application.state(), App::Granted { token, is_started: true } if self.status.token == Some(token))
                && self.status.state == LockState::Held;
            if is_running && self.decider.running().is_some() {
                return true;
            }
        }
        false
    }
}

/// Says which history it was when an assertion fails in the middle of it.
struct Told<'a>(u64, &'a mut Round);

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let history = &self.1.history;
            let newest = history.iter().skip(history.len().saturating_sub(60));
            eprintln!("history {}: {}", self.0, history[0]);
            newest.for_each(|line| eprintln!("{line}"));
        }
    }
}

#[test]
fn in_no_history_is_the_lock_given_up_while_the_application_runs_and_none_gets_stuck() {
    for seed in 0..HISTORIES {
        let mut round = Round::new(seed);
        let told = Told(seed, &mut round);
        let round = &mut *told.1;
        for _ in 0..STEPS {
            if round.is_over {
                break;
            }
            round.something_happens();
        }
        assert!(
            round.is_over || round.settle(),
            "stuck in {:?}",
            round.decider.application.state()
        );
        drop(told);
    }
}
