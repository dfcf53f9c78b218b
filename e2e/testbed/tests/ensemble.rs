//! The ensemble itself: real servers, cuts between them, and the remains of a killed harness.

use std::process::{Command, Stdio};
use std::time::Duration;

use lockkeeper_testbed::clock::since_boot;
use lockkeeper_testbed::ensemble::{Mode, block_on, connector};
use lockkeeper_testbed::owner::{MARK, is_running};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Process};
use zookeeper_client::{Acls, CreateMode};

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(30);

fn start(config: Config) -> Ensemble {
    let began = since_boot();
    let ensemble = Ensemble::start(config).expect("the servers start");
    println!(
        "{} servers serve after {:.2} s",
        ensemble.len(),
        (since_boot() - began).as_secs_f64()
    );
    ensemble
}

/// A `syncLimit` of 6 s: short enough that the servers soon give each other up, and long enough for a busy
/// machine.
fn quick() -> Config {
    Config {
        tick: Duration::from_millis(500),
        sync_limit: 12,
        ..Config::default()
    }
}

/// True when cuts work here; otherwise prints why the test is skipped.
fn can_cut(ensemble: &Ensemble) -> bool {
    match ensemble.network().can_cut() {
        Ok(()) => true,
        Err(reason) => {
            lockkeeper_skip::skip(reason);
            false
        }
    }
}

#[test]
fn the_others_find_out_about_a_server_that_is_cut_off_and_take_it_back_when_healed() {
    let ensemble = start(quick());
    if !can_cut(&ensemble) {
        return;
    }
    let (leader, followers) = ensemble.wait_for_roles().unwrap();
    let follower = followers[0];

    let cut = since_boot();
    for other in (0..ensemble.len()).filter(|&other| other != follower) {
        ensemble
            .cut(ensemble.server(follower), ensemble.server(other))
            .unwrap();
    }
    wait_for(BOUND, || {
        (ensemble.synced_followers(leader) == Some(1)).then_some(())
    })
    .expect("the leader finds out");
    println!(
        "the leader found out after {:.2} s",
        (since_boot() - cut).as_secs_f64()
    );
    wait_for(BOUND, || {
        (ensemble.mode(follower) == Mode::NotServing).then_some(())
    })
    .expect("the follower gives up");

    for other in (0..ensemble.len()).filter(|&other| other != follower) {
        ensemble
            .heal(ensemble.server(follower), ensemble.server(other))
            .unwrap();
    }
    let healed = since_boot();
    wait_for(BOUND, || {
        (ensemble.synced_followers(leader) == Some(2)).then_some(())
    })
    .expect("it comes back");
    println!("it was back after {:.2} s", (since_boot() - healed).as_secs_f64());
}

#[test]
fn a_leader_that_is_cut_off_is_replaced() {
    let ensemble = start(quick());
    if !can_cut(&ensemble) {
        return;
    }
    let (old, followers) = ensemble.wait_for_roles().unwrap();
    for follower in followers {
        ensemble
            .cut(ensemble.server(old), ensemble.server(follower))
            .unwrap();
    }
    let is_followed = || {
        let leader = ensemble.leader()?;
        (leader != old && ensemble.synced_followers(leader) == Some(1)).then_some(())
    };
    wait_for(BOUND, is_followed).expect("another leads");
}

#[test]
fn a_client_that_is_cut_off_from_one_server_reaches_another() {
    let ensemble = start(Config::default());
    if !can_cut(&ensemble) {
        return;
    }
    let client = ensemble.client("client").unwrap();
    let short = Duration::from_millis(300);
    ensemble.cut(&client, ensemble.server(0)).unwrap();
    assert!(client.connect(ensemble.address(0), short).is_err());
    assert!(client.connect(ensemble.address(1), BOUND).is_ok());
    assert!(ensemble.observer().connect(ensemble.address(0), BOUND).is_ok());
    ensemble.heal(&client, ensemble.server(0)).unwrap();
    assert!(client.connect(ensemble.address(0), BOUND).is_ok());
}

#[test]
fn a_cut_that_two_faults_have_made_is_healed_by_the_second() {
    let ensemble = start(Config {
        servers: 1,
        ..Config::default()
    });
    if !can_cut(&ensemble) {
        return;
    }
    let client = ensemble.client("client").unwrap();
    let reaches_within = |time| client.connect(ensemble.address(0), time).is_ok();
    ensemble.cut(&client, ensemble.server(0)).unwrap();
    ensemble.cut(ensemble.server(0), &client).unwrap();
    ensemble.heal(&client, ensemble.server(0)).unwrap();
    assert!(!reaches_within(Duration::from_millis(300)));
    ensemble.heal(&client, ensemble.server(0)).unwrap();
    assert!(reaches_within(BOUND));
}

#[test]
fn what_was_written_survives_a_killed_server_and_a_rolling_restart() {
    let ensemble = start(Config::default());
    let connect = ensemble.connect_string();
    let open = Acls::anyone_all();
    block_on(ensemble.observer(), || async {
        let client = connector().connect(&connect).await.unwrap();
        client
            .create("/kept", b"data", &CreateMode::Persistent.with_acls(open))
            .await
            .unwrap();
    })
    .unwrap();

    let (leader, _) = ensemble.wait_for_roles().unwrap();
    ensemble.kill(leader);
    assert_eq!(ensemble.pid(leader), None);
    ensemble.wait_for_quorum().unwrap();
    assert_ne!(ensemble.leader(), Some(leader));
    ensemble.restart(leader).unwrap();
    let pids: Vec<_> = (0..3).map(|server| ensemble.pid(server)).collect();
    ensemble.rolling_restart().unwrap();
    assert!((0..3).all(|server| ensemble.pid(server) != pids[server]));

    let (data, _) = block_on(ensemble.observer(), || async {
        connector()
            .connect(&connect)
            .await
            .unwrap()
            .get_data("/kept")
            .await
            .unwrap()
    })
    .unwrap();
    assert_eq!(data, b"data");
}

#[test]
fn without_namespaces_the_servers_run_on_loopback_addresses_and_cuts_are_refused_with_a_reason() {
    let ensemble = start(Config {
        loopback: true,
        ..Config::default()
    });
    assert_eq!(ensemble.wait_for_roles().unwrap().1.len(), 2);
    let refusal = ensemble.cut(ensemble.server(0), ensemble.server(1)).unwrap_err();
    assert!(
        refusal
            .to_string()
            .contains("no network namespaces: the test asked for"),
        "{refusal}"
    );
}

#[test]
fn a_killed_harness_leaves_nothing_that_the_next_one_does_not_remove() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockkeeper-ensemble"));
    // The orphan's parent is gone, so the harness's death alone does not end it.
    let script = "setsid sleep 600 & exec sleep 600";
    command
        .args(["--servers", "1", "--", "sh", "-c", script])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut harness = Process::spawn("harness", command).unwrap();
    let pid = harness.pid().as_raw_pid() as u32;
    let started = || Some(marked_by(pid)).filter(|found| found.len() == 3);
    let left = wait_for(BOUND, started).expect("a server, a command and an orphan run");
    harness.kill();

    // The harness's own children die with it, at once.
    let orphans = || left.iter().filter(|&&pid| is_running(pid)).count();
    wait_for(BOUND, || (orphans() <= 1).then_some(())).expect("the server and the command end");
    let next = start(Config {
        servers: 1,
        ..Config::default()
    });
    assert_eq!(orphans(), 0);
    let prefix = format!(".{pid}.");
    let directories = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let names: Vec<_> = directories
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.starts_with("lockkeeper-e2e.") && name.contains(&prefix)),
        "{names:?}"
    );
    drop(next);
}

/// The processes that carry the mark of a harness.
fn marked_by(harness: u32) -> Vec<u32> {
    let mark = format!(".{harness}.");
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let text = String::from_utf8_lossy(&environment).into_owned();
            text.split('\0')
                .any(|entry| entry.starts_with(MARK) && entry.contains(&mark))
        })
        .collect()
}
