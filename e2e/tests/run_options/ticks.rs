//! Servers whose ticks differ: the longest one counts, since its server may come to lead, and a server with a short one
//! grants shorter sessions.

use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::Records;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_product::worker::{Options, Worker, all_records};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Host, faults};

use crate::harness::{BOUND, Run, client, contenders, wait_for_contenders};

/// Lets a server start again with another tick.
fn set_tick(ensemble: &Ensemble, server: usize, tick: &str) {
    ensemble.restart_with(server, &[("tickTime", tick)]).unwrap();
    ensemble.wait_for_roles().unwrap();
}

/// Whether a session of this host is at that server.
fn is_at(ensemble: &Ensemble, host: &Host, server: usize) -> bool {
    let address = format!("/{}:", host.address());
    let sessions = ensemble.ask(server, "cons").unwrap_or_default();
    // A connection without a session, such as that of a question, has no `sid`.
    sessions
        .lines()
        .any(|line| line.contains(&address) && line.contains("sid=0x"))
}

/// So often a server may be too busy to tell its tick in time.
const TRIES: u8 = 5;

/// Leaves the host only these servers, and waits until its session is at one of them.
fn move_to(ensemble: &Ensemble, host: &Host, servers: &[usize]) {
    for server in 0..ensemble.len() {
        if servers.contains(&server) {
            ensemble.heal(host, ensemble.server(server)).unwrap();
        } else {
            ensemble.cut(host, ensemble.server(server)).unwrap();
        }
    }
    let is_there = || {
        servers
            .iter()
            .any(|server| is_at(ensemble, host, *server))
            .then_some(())
    };
    wait_for(BOUND, is_there).expect("the session moves there");
}

#[test]
fn who_states_a_shorter_tick_than_the_longest_of_all_servers_is_refused_and_asks_for_no_lock() {
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    // One of the two that follow: neither the leader nor most of the servers have it.
    let (_, followers) = ensemble.wait_for_roles().unwrap();
    set_tick(&ensemble, followers[0], "3000");
    set_tick(&ensemble, followers[1], "500");
    let run = |name: &str, lock: &str, stated: &str, command: &[&str]| {
        Run::start(&ensemble, name, lock, &["--tick-time", stated], command)
    };
    for stated in ["500ms", "1s", "2900ms"] {
        // A server that is busy for half a second tells its tick later; then the run is refused later.
        let is_refused_at_once = (0..TRIES).any(|round| {
            let name = format!("tick-{stated}-{round}");
            let lock = format!("/ticks/{name}");
            let mut refused = run(&name, &lock, stated, &["sleep", "600"]);
            assert_eq!(refused.code(), 64, "{}", refused.stderr());
            let sentences = refused.sentences();
            sentences.len() == 1
                && sentences[0].contains("--tick-time 3000ms")
                // It was at no server.
                && contenders(&ensemble, &lock).is_none()
        });
        assert!(is_refused_at_once, "{stated}");
    }
    let mut right = run("tick-3s", "/ticks/right", "3s", &["echo", "ran"]);
    assert_eq!(
        (right.code(), right.stdout().as_str()),
        (0, "ran\n"),
        "{}",
        right.stderr()
    );
}

/// The server of the holder does not change, and never has a long tick. A lease that is counted by its tick may be too
/// long as soon as the other server leads.
#[test]
fn a_holder_is_stopped_and_ends_with_64_when_another_server_than_its_own_has_come_back_with_a_longer_tick() {
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    let (leader, followers) = ensemble.wait_for_roles().unwrap();
    let (own, changed) = (followers[0], followers[1]);
    let lock = "/ticks/changed";
    let options = Options {
        session_timeout: Duration::from_secs(20),
        ..Options::new(&ensemble, "holder", lock).unwrap()
    };
    let host = options.host.clone();
    for server in [leader, changed] {
        ensemble.cut(&host, ensemble.server(server)).unwrap();
    }
    let mut holder = Worker::start(&ensemble, options).unwrap();
    holder.wait_until_it_runs(0, BOUND).unwrap();
    wait_for(BOUND, || is_at(&ensemble, &host, own).then_some(())).expect("it is at its server");
    for server in [leader, changed] {
        ensemble.heal(&host, ensemble.server(server)).unwrap();
    }
    // The keeper asks a server until it has told its tick. From then on it has no reason to ask this one again but a
    // new connection of its own.
    let question = format!("conf command from /{}:", host.address());
    wait_for(BOUND, || ensemble.log(changed).contains(&question).then_some(()))
        .unwrap_or_else(|| panic!("it is not asked:\n{}", holder.log()));
    set_tick(&ensemble, changed, "3000");

    // The next leader, whichever it is, ends all connections to all servers.
    ensemble.kill(leader);
    let status = holder.wait_until_it_ends(BOUND).unwrap();
    assert_eq!(status.code(), Some(64), "{}", holder.log());
    assert!(
        holder.log().contains("set --tick-time 3000ms"),
        "{}",
        holder.log()
    );
    assert_eq!(contenders(&ensemble, lock), Some(vec![]), "the lock is released");

    let record = ensemble.directory().join("next.record");
    let recorder = binaries::recorder().unwrap();
    let command = [
        recorder.to_str().unwrap(),
        record.to_str().unwrap(),
        "--name",
        "next",
    ];
    let next = Run::start(&ensemble, "next", lock, &["--tick-time", "3s"], &command);
    let records = || Some(Records::read(&record).ok()?.records).filter(|records| !records.is_empty());
    let begun = wait_for(BOUND, records).unwrap_or_else(|| panic!("{}", next.stderr()));
    let report = check(&[holder.records().unwrap(), begun].concat(), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}

/// Milliseconds until the deadline, as the keeper reports them.
fn remaining(socket: &str) -> Option<u64> {
    let (_, said) = client(&["status", "--socket", socket, "--output", "json"]);
    let status: serde_json::Value = serde_json::from_str(&said).ok()?;
    status["remainingMillis"].as_u64()
}

/// A server grants 20 of its ticks at most. The leader may hear late of what a server with short ticks has granted.
#[test]
fn a_holder_that_was_at_a_server_with_shorter_ticks_keeps_the_shorter_deadlines_at_servers_with_longer_ones()
{
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    let (leader, followers) = ensemble.wait_for_roles().unwrap();
    let (short, long) = (followers[0], [followers[1], leader]);
    set_tick(&ensemble, short, "500");
    let lock = "/ticks/granted";
    let path = ensemble.directory().join("ticks.sock");
    let socket = path.to_str().unwrap();
    let options = |name| Options {
        session_timeout: Duration::from_secs(20),
        ..Options::new(&ensemble, name, lock)
            .unwrap()
            .with_run(&["--lease-duration", "off"])
    };
    let held = options("holder").with_run(&["--socket", socket]);
    let host = held.host.clone();
    ensemble.cut(&host, ensemble.server(short)).unwrap();
    let holder = Worker::start(&ensemble, held).unwrap();
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = Worker::start(&ensemble, options("waiter")).unwrap();
    wait_for_contenders(&ensemble, lock, 2);
    // It swings by the renew interval.
    wait_for(BOUND, || (remaining(socket)? > 10_000).then_some(()))
        .unwrap_or_else(|| panic!("{}", holder.log()));

    // 20 ticks of 500 ms, less the margin: 1 % of that and 200 ms.
    const MOST: u64 = 10_000 - 300;
    move_to(&ensemble, &host, &[short]);
    wait_for(BOUND, || (remaining(socket)? <= MOST).then_some(()))
        .unwrap_or_else(|| panic!("{}", holder.log()));
    move_to(&ensemble, &host, &long);
    // Longer than the lease that it had: so it is proven anew, over this connection.
    let end = BootInstant::now() + Duration::from_millis(MOST);
    let is_proven_anew = || {
        let left = remaining(socket)?;
        assert!(left <= MOST, "{left} ms\n{}", holder.log());
        (BootInstant::now() > end).then_some(())
    };
    wait_for(BOUND, is_proven_anew).unwrap_or_else(|| panic!("{}", holder.log()));
    assert!(waiter.records().unwrap().is_empty(), "{}", waiter.log());

    // From now on only the guard can stop it, by its last deadline.
    let stopped = BootInstant::now();
    faults::stop(holder.keeper_pid().unwrap()).unwrap();
    let next = waiter.wait_until_it_runs(token, BOUND).unwrap();
    let begun = waiter.first_stamp(next).unwrap();
    let goes_on = || (waiter.last_stamp(next).ok()? > begun + Duration::from_secs(1)).then_some(());
    wait_for(BOUND, goes_on).expect("the next one runs");
    let report = check(&all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
    let ran = report.holds[0].end - stopped;
    assert!(
        ran <= Duration::from_millis(MOST),
        "it ran for {ran:?} without its keeper"
    );
}
