//! An ensemble is changed under a holder and a waiter: the application runs on under its token, and afterwards
//! the lock can be handed over. docs/production.md ("Changing a running ensemble") has the procedures.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Moment;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::worker::{self, Options, Worker};
use lockkeeper_testbed::ensemble::{SUPER, block_on, connector};
use lockkeeper_testbed::java::Release;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::Signal;

const BOUND: Duration = Duration::from_secs(60);
const LOCK: &str = "/locks/life";

/// T of a holder, twice the default: it tolerates 11.5 s without an answer, also by its lease duration, `auto`. An election
/// takes 0.3 to 2 s, also with several times as much to do as the machine can.
const SESSION: Duration = Duration::from_secs(30);
/// The stop grace of a holder, the default.
const STOP_GRACE: Duration = Duration::from_secs(3);

/// An election has to fit into the patience of a holder, so servers start and elect in one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Servers with the times that docs/production.md recommends.
fn servers() -> Config {
    Config {
        tick: Duration::from_secs(2),
        sync_limit: 5,
        ..Config::default()
    }
}

fn start(ensemble: &Ensemble, options: Options) -> Worker {
    let options = Options {
        session_timeout: SESSION,
        stop_grace: STOP_GRACE,
        ..options
    };
    Worker::start(ensemble, options).unwrap()
}

/// A worker that knows the servers that are members now.
fn options(ensemble: &Ensemble, name: &str) -> Options {
    Options::new(ensemble, name, LOCK).unwrap()
}

/// The tokens of all contenders, in the order of the queue.
fn tokens(ensemble: &Ensemble) -> Vec<i64> {
    let servers = ensemble.connect_string();
    let listed = block_on(ensemble.observer(), || async {
        let client = connector()
            .with_auth("digest", SUPER.as_bytes())
            .connect(&servers)
            .await?;
        let mut tokens = Vec::new();
        for name in client.list_children(LOCK).await? {
            tokens.extend(client.check_stat(&format!("{LOCK}/{name}")).await?);
        }
        Ok::<_, zookeeper_client::Error>(tokens)
    });
    // Not made yet, or no leader at the moment.
    let mut tokens: Vec<_> = listed
        .unwrap()
        .unwrap_or_default()
        .iter()
        .map(|stat| stat.czxid)
        .collect();
    tokens.sort_unstable();
    tokens
}

/// Waits until this many contenders are in the queue, and returns the token of the last one.
fn last_of(ensemble: &Ensemble, count: usize) -> i64 {
    let last = || {
        let tokens = tokens(ensemble);
        (tokens.len() == count).then(|| tokens.last().copied()).flatten()
    };
    wait_for(BOUND, last).expect("all are in the queue")
}

/// A worker that holds, or will hold under a token that is known by its place in the queue.
struct Contender {
    worker: Worker,
    token: i64,
}

impl Contender {
    /// The first in the queue: its application runs.
    fn holder(ensemble: &Ensemble, options: Options) -> Self {
        let worker = start(ensemble, options);
        let token = worker.wait_until_it_runs(0, BOUND).unwrap();
        Self { worker, token }
    }

    /// A holder whose session begins at one server; later it may use all of them.
    fn holder_at(ensemble: &Ensemble, server: usize) -> Self {
        let options = options(ensemble, "holder");
        let host = options.host.clone();
        let others: Vec<_> = (0..ensemble.len()).filter(|&other| other != server).collect();
        for &other in &others {
            ensemble.cut(&host, ensemble.server(other)).unwrap();
        }
        let holder = Self::holder(ensemble, options);
        for &other in &others {
            ensemble.heal(&host, ensemble.server(other)).unwrap();
        }
        holder
    }

    /// Behind `others` contenders in the queue.
    fn waiter(ensemble: &Ensemble, name: &str, others: usize) -> Self {
        Self::waiter_with(ensemble, options(ensemble, name), others)
    }

    fn waiter_with(ensemble: &Ensemble, options: Options, others: usize) -> Self {
        let worker = start(ensemble, options);
        let token = last_of(ensemble, others + 1);
        Self { worker, token }
    }

    /// Waits until its application has recorded something later than `moment`, under its token.
    fn runs_after(&self, moment: BootInstant) {
        wait_for(BOUND, || {
            (self.worker.last_stamp(self.token).ok()? > moment).then_some(())
        })
        .unwrap_or_else(|| panic!("the application does not run on:\n{}", self.worker.log()));
    }

    /// Waits until its application has run for longer than the lease that it may have now: so the lease has been
    /// proven anew since.
    fn outlives_its_lease(&self) {
        self.runs_after(BootInstant::now() + SESSION);
    }

    /// Ends it, and waits until the next one runs under the token of its place in the queue.
    fn hands_over_to(&mut self, next: &Self) {
        self.worker.guard().signal(Signal::TERM);
        next.worker.wait_until_it_runs(self.token, BOUND).unwrap();
        self.worker.wait_until_it_ends(BOUND).unwrap();
        let log = self.worker.log();
        assert!(log.contains("lock.to=\"Released\""), "{log}");
    }
}

/// Each of these ran once, one after the other, under the token of its place in the queue.
fn assert_each_ran_once(contenders: &[&Contender]) {
    let workers = contenders.iter().map(|contender| &contender.worker);
    let records = worker::all_records(workers).unwrap();
    let report = check(&records, Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean(), "{report}");
    let held: Vec<_> = report.holds.iter().map(|hold| hold.token).collect();
    let expected: Vec<_> = contenders.iter().map(|contender| contender.token).collect();
    assert_eq!(held, expected, "{report}");
    let begins = records
        .iter()
        .filter(|record| matches!(record.moment, Moment::Begin { .. }));
    assert_eq!(begins.count(), contenders.len(), "{report}");
}

/// False, with the reason, where hosts cannot be cut off from servers.
fn can_cut(ensemble: &Ensemble) -> bool {
    match ensemble.network().can_cut() {
        Ok(()) => true,
        Err(reason) => {
            lockkeeper_skip::skip(reason);
            false
        }
    }
}

/// Waits until all servers say that they are of this release.
fn wait_until_all_are(ensemble: &Ensemble, release: &str) {
    let is_it = |server| {
        let version = ensemble.version(server);
        version.is_some_and(|version| version.starts_with(release))
    };
    wait_for(BOUND, || (0..3).all(is_it).then_some(()))
        .unwrap_or_else(|| panic!("not all servers are of {release}"));
}

#[test]
fn the_application_runs_on_while_the_servers_are_upgraded_from_3_8_to_3_9_one_after_the_other() {
    let turn = alone();
    let mut ensemble = Ensemble::start(Config {
        release: Release::V3_8,
        ..servers()
    })
    .unwrap();
    wait_until_all_are(&ensemble, "3.8");
    let mut holder = Contender::holder(&ensemble, options(&ensemble, "holder"));
    let waiter = Contender::waiter(&ensemble, "waiter", 1);

    for server in ensemble.rolling_order() {
        ensemble.upgrade(server, Release::V3_9).unwrap();
        ensemble.wait_for_roles().unwrap();
        holder.runs_after(BootInstant::now());
    }
    wait_until_all_are(&ensemble, "3.9");
    drop(turn);

    holder.outlives_its_lease();
    holder.hands_over_to(&waiter);
    assert_each_ran_once(&[&holder, &waiter]);
}

#[test]
fn the_application_runs_on_while_three_servers_become_five_and_two_of_the_first_three_leave() {
    let turn = alone();
    let mut ensemble = Ensemble::start(Config {
        reconfigurable: true,
        ..servers()
    })
    .unwrap();
    if !can_cut(&ensemble) {
        return;
    }
    let (stays, leaving) = ensemble.wait_for_roles().unwrap();
    let mut holder = Contender::holder_at(&ensemble, leaving[0]);
    let mut waiter = Contender::waiter(&ensemble, "waiter", 1);

    let added = ensemble.add(2).unwrap();
    assert_eq!(ensemble.members().len(), 5);
    holder.runs_after(BootInstant::now());

    // The user starts contenders that know the servers that are to stay, and ends the former waiters. Then two leave.
    let remaining = [vec![stays], added].concat();
    let known = Options {
        connect: ensemble.connect_string_of(&remaining),
        ..options(&ensemble, "newcomer")
    };
    let mut newcomer = Contender::waiter_with(&ensemble, known, 2);
    waiter.worker.guard().signal(Signal::TERM);
    waiter.worker.wait_until_it_ends(BOUND).unwrap();
    ensemble.remove(&leaving).unwrap();
    for server in leaving {
        ensemble.kill(server);
    }
    assert_eq!(ensemble.members(), remaining);
    ensemble.wait_for_quorum().unwrap();
    holder.runs_after(BootInstant::now());
    drop(turn);
    // The user has forgotten the former holder: of the servers that it knows, one is left.
    holder.outlives_its_lease();
    holder.hands_over_to(&newcomer);

    // The last of the first three.
    let turn = alone();
    ensemble.kill(stays);
    ensemble.wait_for_quorum().unwrap();
    drop(turn);
    let next = Contender::waiter(&ensemble, "next", 1);
    newcomer.hands_over_to(&next);
    assert_each_ran_once(&[&holder, &newcomer, &next]);
}

#[test]
fn the_application_runs_on_while_the_leader_is_replaced_by_a_reconfiguration() {
    let turn = alone();
    let mut ensemble = Ensemble::start(Config {
        reconfigurable: true,
        ..servers()
    })
    .unwrap();
    if !can_cut(&ensemble) {
        return;
    }
    let (leader, _) = ensemble.wait_for_roles().unwrap();
    let mut holder = Contender::holder_at(&ensemble, leader);
    let waiter = Contender::waiter(&ensemble, "waiter", 1);

    ensemble.add(1).unwrap();
    assert_eq!(ensemble.wait_for_roles().unwrap().0, leader);
    ensemble.remove(&[leader]).unwrap();
    holder.runs_after(BootInstant::now());
    ensemble.kill(leader);
    holder.runs_after(BootInstant::now());
    drop(turn);

    holder.outlives_its_lease();
    holder.hands_over_to(&waiter);
    assert_each_ran_once(&[&holder, &waiter]);
}

#[test]
fn the_application_runs_on_and_tokens_grow_when_the_transaction_counter_starts_again() {
    let turn = alone();
    let ensemble = Ensemble::start(Config {
        settable_counter: true,
        ..servers()
    })
    .unwrap();
    let epoch = || Some(ensemble.zxid(ensemble.leader()?)? >> 32);
    let before = wait_for(BOUND, epoch).unwrap();
    ensemble.set_counter(0xffff_f000).unwrap();
    let mut holder = Contender::holder(&ensemble, options(&ensemble, "holder"));
    let mut waiter = Contender::waiter(&ensemble, "waiter", 1);

    // The next write but one, a renewal, does not fit any more: the leader gives up, and another one is elected.
    ensemble.set_counter(0xffff_fffd).unwrap();
    wait_for(BOUND, || (epoch()? > before).then_some(())).expect("the next epoch begins");
    ensemble.wait_for_roles().unwrap();
    let gave_up = |server| {
        ensemble
            .log(server)
            .contains("zxid lower 32 bits have rolled over")
    };
    assert_eq!(
        ensemble
            .members()
            .into_iter()
            .filter(|&server| gave_up(server))
            .count(),
        1
    );
    holder.runs_after(BootInstant::now());
    drop(turn);
    let newcomer = Contender::waiter(&ensemble, "newcomer", 2);
    let counter = |contender: &Contender| contender.token as u32;
    assert!(counter(&waiter) > 0xffff_f000 && counter(&newcomer) < 0xffff_f000);

    holder.outlives_its_lease();
    holder.hands_over_to(&waiter);
    waiter.hands_over_to(&newcomer);
    assert_each_ran_once(&[&holder, &waiter, &newcomer]);
}

#[test]
fn a_holder_whose_servers_have_all_left_is_stopped_before_one_that_knows_the_others_runs() {
    let turn = alone();
    let mut ensemble = Ensemble::start(Config {
        reconfigurable: true,
        ..Config::default()
    })
    .unwrap();
    let (_, followers) = ensemble.wait_for_roles().unwrap();
    let leaving = followers[0];
    // Its session has to end, and until then it tolerates 4.3 s without an answer.
    let known = Options {
        connect: ensemble.connect_string_of(&[leaving]),
        session_timeout: Duration::from_secs(10),
        ..options(&ensemble, "holder")
    };
    let holder = Worker::start(&ensemble, known).unwrap();
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let holder = Contender {
        worker: holder,
        token,
    };
    ensemble.add(1).unwrap();
    ensemble.remove(&[leaving]).unwrap();
    let next = Contender::waiter(&ensemble, "next", 1);
    holder.runs_after(BootInstant::now());
    ensemble.kill(leaving);
    drop(turn);

    next.worker.wait_until_it_runs(token, BOUND).unwrap();
    assert_each_ran_once(&[&holder, &next]);
}
