//! Locks seen, and handed over, from a machine that has no keeper.

use std::process::{Command, Stdio};

use lockkeeper_product::binaries;
use lockkeeper_product::worker::keeper_of;
use lockkeeper_testbed::Ensemble;
use lockkeeper_testbed::process::wait_for;
use serde_json::Value;
use zookeeper_client::{Acls, CreateMode};

use crate::harness::{BOUND, Run, client, contenders, ensemble, wait_for_contenders, with_client};

/// The command of a holder.
pub(super) const SLEEP: [&str; 2] = ["sleep", "1000"];

/// Runs one of the commands, and returns its exit code and its output.
pub(super) fn ask(ensemble: &Ensemble, arguments: &[&str]) -> (i32, String) {
    let connect = ensemble.connect_string();
    let all: Vec<_> = arguments.iter().copied().chain(["--connect", &connect]).collect();
    ensemble.observer().run(|| client(&all)).unwrap()
}

/// The same with JSON as its output.
pub(super) fn json(ensemble: &Ensemble, arguments: &[&str]) -> Value {
    let all: Vec<_> = arguments.iter().copied().chain(["-o", "json"]).collect();
    let (code, text) = ask(ensemble, &all);
    assert_eq!(code, 0, "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A run in the queue of a lock, behind so many others.
pub(super) fn run(ensemble: &Ensemble, name: &str, lock: &str, behind: usize) -> Run {
    let run = Run::start(ensemble, name, lock, &[], &SLEEP);
    wait_for_contenders(ensemble, lock, behind + 1);
    run
}

pub(super) fn wait_until_held(ensemble: &Ensemble, lock: &str) {
    let is_held =
        || (json(ensemble, &["inspect", "--lock", lock])["holders"][0]["state"] == "held").then_some(());
    wait_for(BOUND, is_held).expect("the lock is held");
}

#[test]
fn each_lock_of_an_ensemble_is_listed_with_its_holder_its_token_and_how_many_wait() {
    let ensemble = ensemble();
    let locks = ["/observe/list/a", "/observe/list/b", "/observe/list/deep/er/c"];
    let _first = run(&ensemble, "list-a-1", locks[0], 0);
    let _second = run(&ensemble, "list-a-2", locks[0], 1);
    let _other = run(&ensemble, "list-c", locks[2], 0);
    for lock in [locks[0], locks[2]] {
        wait_until_held(&ensemble, lock);
    }
    // A client of Curator, which writes its address.
    let curators = format!("{}/_c_3c1d2f0e-0000-4000-8000-000000000000-lock-", locks[1]);
    with_client(&ensemble, async |client| {
        client
            .mkdir(locks[1], &CreateMode::Persistent.with_acls(Acls::anyone_all()))
            .await?;
        let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        client.create(&curators, b"10.0.0.7", &options).await
    })
    .unwrap();
    wait_for_contenders(&ensemble, locks[1], 1);
    let listed = json(&ensemble, &["list", "--lock", "/observe/list/**"]);
    let named: Vec<_> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| lock["lock"].as_str().unwrap())
        .collect();
    assert_eq!(named, locks);
    assert_eq!(listed[0]["waiting"], 1);
    assert!(
        listed[0]["holders"][0]["fencingToken"]
            .as_i64()
            .is_some_and(|token| token > 0),
        "{listed}"
    );
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    assert_eq!(listed[0]["holders"][0]["host"], host.as_str());
    assert_eq!(listed[1]["holders"][0]["address"], "10.0.0.7");
    assert_eq!(listed[1].get("kind"), None, "{listed}");
    // Patterns.
    let (code, text) = ask(&ensemble, &["list", "--lock", "/observe/list/?"]);
    assert_eq!(code, 0);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("LOCK ") && lines.len() == 3, "{text}");
    assert!(
        lines[1].starts_with("/observe/list/a   ") && lines[1].ends_with("   1"),
        "{text}"
    );
    assert!(lines[2].contains("10.0.0.7"), "{text}");
    // A root of which we see only the name.
    let folder = tempfile::tempdir().unwrap();
    let auth = folder.path().join("auth");
    std::fs::write(&auth, "other:secret\n").unwrap();
    let secret = "/observe/list/secret";
    let options = ["--auth-file", auth.to_str().unwrap()];
    let _secret = Run::start(&ensemble, "list-secret", secret, &options, &SLEEP);
    let is_told = || {
        let (code, text) = ask(&ensemble, &["list", "--lock", "/observe/list/*"]);
        assert_eq!(code, 0, "{text}");
        text.contains(&format!("left out: cannot read {secret}: no right to do this"))
            .then_some(())
    };
    wait_for(BOUND, is_told).expect("it is told");
    let nothing = ask(&ensemble, &["list", "--lock", "/observe/list/x*"]);
    assert_eq!(nothing, (0, "No locks found.\n".to_owned()));
}

#[test]
fn a_lock_is_shown_with_its_whole_queue_in_order_and_with_who_cannot_be_read() {
    let ensemble = ensemble();
    let lock = "/observe/inspect";
    let _first = run(&ensemble, "inspect-1", lock, 0);
    let _second = run(&ensemble, "inspect-2", lock, 1);
    let names = contenders(&ensemble, lock).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let auth = folder.path().join("auth");
    std::fs::write(&auth, "other:secret\n").unwrap();
    let options = ["--auth-file", auth.to_str().unwrap()];
    let _third = Run::start(&ensemble, "inspect-3", lock, &options, &SLEEP);
    wait_for_contenders(&ensemble, lock, 3);
    wait_until_held(&ensemble, lock);
    let seen = json(&ensemble, &["inspect", "--lock", lock]);
    assert_eq!(seen["kind"], "exclusive");
    assert_eq!(seen["waiting"], 2);
    let queue = seen["queue"].as_array().unwrap();
    let named = [&seen["holders"][0], &queue[0]].map(|one| one["contender"].as_str().unwrap().to_owned());
    let mut in_order = names.clone();
    in_order.sort_by_key(|name| name[name.len() - 10..].to_owned());
    assert_eq!(named.as_slice(), in_order);
    assert!(
        seen["holders"][0]["leaseMillis"]
            .as_u64()
            .is_some_and(|lease| lease > 0),
        "{seen}"
    );
    assert!(seen["holders"][0]["renewed"].is_string(), "{seen}");
    let third = &queue[1];
    assert_eq!(third["unreadable"], true, "{seen}");
    assert_eq!((third.get("state"), third.get("pod")), (None, None), "{seen}");
    // With its identity.
    let seen = json(&ensemble, &["inspect", "--lock", lock, options[0], options[1]]);
    assert_eq!(seen["queue"][1]["state"], "waiting", "{seen}");
    let (code, text) = ask(&ensemble, &["inspect", "--lock", lock]);
    assert_eq!(code, 0);
    assert!(
        text.starts_with("lock      /observe/inspect\nkind      exclusive\nleft      "),
        "{text}"
    );
    assert!(
        text.contains("\nholds   ") && text.contains("\n2       _c_"),
        "{text}"
    );
    assert!(text.contains("   unreadable   "), "{text}");
}

#[test]
fn a_lock_that_is_watched_is_shown_again_after_each_change_and_not_after_renewals() {
    let ensemble = ensemble();
    let lock = "/observe/watch";
    let mut first = run(&ensemble, "watch-1", lock, 0);
    wait_until_held(&ensemble, lock);
    let mut command = Command::new(binaries::lockkeeper().unwrap());
    command.args([
        "watch",
        "--lock",
        lock,
        "-o",
        "json",
        "--connect",
        &ensemble.connect_string(),
    ]);
    command.stdin(Stdio::null());
    let watch = Run::spawn(&ensemble, "watch", command);
    let seen = |number: usize| -> Value { serde_json::from_str(&watch.line(number)).unwrap() };
    assert_eq!(
        (&seen(0)["waiting"], &seen(0)["holders"][0]["state"]),
        (&0.into(), &"held".into())
    );
    let _second = run(&ensemble, "watch-2", lock, 1);
    assert_eq!(seen(1)["waiting"], 1, "many renewals came before");
    let before = seen(1)["holders"][0]["contender"].clone();
    first.signal(rustix::process::Signal::TERM);
    let is_handed_over = || {
        let last: Value = serde_json::from_str(watch.stdout().lines().last()?).ok()?;
        (last["holders"][0]["contender"] != before && last["holders"][0]["state"] == "held").then_some(())
    };
    wait_for(BOUND, is_handed_over).unwrap_or_else(|| panic!("{}", watch.stdout()));
    assert_eq!(watch.stderr(), "");
}

#[test]
fn a_watch_goes_on_when_its_server_falls_silent() {
    let ensemble = ensemble();
    if let Err(reason) = ensemble.network().can_cut() {
        return lockkeeper_skip::skip(reason);
    }
    let lock = "/observe/silence";
    // Its renewals come so often that a reading is always under way, or due.
    let _holder = Run::start(
        &ensemble,
        "silence-1",
        lock,
        &["--renew-interval", "50ms"],
        &SLEEP,
    );
    wait_for_contenders(&ensemble, lock, 1);
    wait_until_held(&ensemble, lock);
    let mut command = Command::new(binaries::lockkeeper().unwrap());
    command.args(["watch", "--lock", lock, "--connect", &ensemble.connect_string()]);
    let mut watch = Run::spawn(&ensemble, "silence", command);
    watch.line(0);
    let each_server = |act: &dyn Fn(usize)| (0..ensemble.len()).for_each(act);
    each_server(&|server| ensemble.cut(&watch.host, ensemble.server(server)).unwrap());
    let is_noticed = || watch.stderr().contains("again").then_some(());
    wait_for(BOUND, is_noticed).expect("it connects again");
    each_server(&|server| ensemble.heal(&watch.host, ensemble.server(server)).unwrap());
    let _waiter = run(&ensemble, "silence-2", lock, 1);
    let is_shown = || watch.stdout().contains("; 1 waiting").then_some(());
    wait_for(BOUND, is_shown).unwrap_or_else(|| panic!("{}", watch.stderr()));
    assert!(watch.process.is_running());
}

#[test]
fn a_holder_that_is_asked_hands_the_lock_over_to_the_next_and_queues_again_at_the_end() {
    let ensemble = ensemble();
    let lock = "/observe/handoff";
    let _first = run(&ensemble, "handoff-1", lock, 0);
    wait_until_held(&ensemble, lock);
    let alone = ask(&ensemble, &["handoff", "--lock", lock]);
    assert_eq!(
        alone,
        (69, format!("lockkeeper: no contender waits for {lock}\n"))
    );
    let _second = run(&ensemble, "handoff-2", lock, 1);
    let before = json(&ensemble, &["inspect", "--lock", lock]);
    let next = before["queue"][0]["contender"].as_str().unwrap();
    let (code, text) = ask(&ensemble, &["handoff", "--lock", lock]);
    assert_eq!(code, 0, "{text}");
    assert!(text.ends_with(&format!("holds {lock}\n")), "{text}");
    wait_for_contenders(&ensemble, lock, 2);
    let after = json(&ensemble, &["inspect", "--lock", lock]);
    assert_eq!(after["holders"][0]["contender"], next);
    assert_eq!(after["waiting"], 1, "the first queues again: {after}");
    // Data of others stay as they are.
    let other = "/observe/configuration";
    with_client(&ensemble, async |client| {
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.create(other, b"port: 80", &open).await
    })
    .unwrap();
    let foreign = ask(&ensemble, &["handoff", "--lock", lock, "--control", other]);
    assert_eq!(foreign.0, 64, "{}", foreign.1);
    let data = with_client(&ensemble, async |client| client.get_data(other).await)
        .unwrap()
        .0;
    assert_eq!(data, b"port: 80");
    let unknown = ask(&ensemble, &["handoff", "--lock", lock, "--holder", "nobody"]);
    assert_eq!(unknown.0, 64, "{}", unknown.1);
}

#[test]
fn a_holder_that_may_not_be_asked_is_not_asked_and_one_that_does_not_step_down_is_given_up_with_81() {
    let ensemble = ensemble();
    let lock = "/observe/refused";
    // Open to all, unlike its contenders.
    with_client(&ensemble, async |client| {
        let open = CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(lock, &open).await
    })
    .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let auth = folder.path().join("auth");
    std::fs::write(&auth, "other:secret\n").unwrap();
    let auth = ["--auth-file", auth.to_str().unwrap()];
    let holder = Run::start(
        &ensemble,
        "refused-1",
        lock,
        &auth,
        &["sh", "-c", "trap '' TERM; sleep 1000"],
    );
    wait_for_contenders(&ensemble, lock, 1);
    let waits = Run::start(&ensemble, "refused-2", lock, &auth, &SLEEP);
    wait_for_contenders(&ensemble, lock, 2);
    let (code, text) = ask(&ensemble, &["handoff", "--lock", lock]);
    assert_eq!(code, 77, "{text}");
    assert!(text.contains("give --auth-file"), "{text}");
    let is_held = || {
        let seen = json(&ensemble, &["inspect", "--lock", lock, auth[0], auth[1]]);
        (seen["holders"][0]["state"] == "held").then_some(())
    };
    wait_for(BOUND, is_held).expect("the lock is held");
    // A keeper that stands still reads no request; its session outlives this.
    let keeper = keeper_of(holder.process.pid()).unwrap();
    rustix::process::kill_process(keeper, rustix::process::Signal::STOP).unwrap();
    let (code, text) = ask(
        &ensemble,
        &["handoff", "--lock", lock, "--timeout", "500ms", auth[0], auth[1]],
    );
    assert_eq!(code, 81, "{text}");
    drop((holder, waits));
}

#[test]
fn a_handoff_of_one_of_several_holders_keeps_the_request_of_another_one_and_names_who_has_waited() {
    let ensemble = ensemble();
    let lock = "/observe/semaphore";
    let two = ["--max-holders", "2"];
    let _runs: Vec<_> = (1..=3)
        .map(|number| {
            let run = Run::start(&ensemble, &format!("semaphore-{number}"), lock, &two, &SLEEP);
            wait_for_contenders(&ensemble, lock, number);
            run
        })
        .collect();
    let before = || json(&ensemble, &["inspect", "--lock", lock]);
    let are_held = || {
        let seen = before();
        [0, 1]
            .iter()
            .all(|at| seen["holders"][*at]["state"] == "held")
            .then_some(seen)
    };
    let seen = wait_for(BOUND, are_held).expect("both hold");
    let (code, text) = ask(&ensemble, &["handoff", "--lock", lock]);
    assert_eq!(code, 64, "{text}");
    assert!(text.contains("2 contenders hold"), "{text}");
    let name = |entry: &Value| entry["contender"].as_str().unwrap().to_owned();
    let (second, third) = (name(&seen["holders"][1]), name(&seen["queue"][0]));
    let (code, text) = ask(&ensemble, &["handoff", "--lock", lock, "--holder", &second]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("has stepped down, and "), "{text}");
    let after = before();
    let holders: Vec<_> = after["holders"].as_array().unwrap().iter().map(name).collect();
    assert_eq!(holders, [name(&seen["holders"][0]), third], "{after}");
}

#[test]
fn names_and_data_of_a_stranger_neither_end_a_list_nor_fill_it() {
    let ensemble = ensemble();
    let open = || CreateMode::Persistent.with_acls(Acls::anyone_all());
    let (root, long) = ("/observe/stranger", "n".repeat(70_000));
    with_client(&ensemble, async |client| {
        client.mkdir(root, &open()).await?;
        client.create(&format!("{root}/{long}"), b"", &open()).await?;
        client.create(&format!("{root}/lock"), b"", &open()).await?;
        for name in [
            format!("{long}-lock-0000000001"),
            "\u{202e}-lock-0000000002".to_owned(),
        ] {
            client
                .create(&format!("{root}/lock/{name}"), &[b'x'; 100_000], &open())
                .await?;
        }
        Ok(())
    })
    .unwrap();
    let (code, text) = ask(&ensemble, &["list", "--lock", "/observe/stranger/**"]);
    assert_eq!((code, text.lines().count()), (0, 2), "{text}");
    assert!(text.len() < 1_000, "{} bytes", text.len());
    let (code, text) = ask(&ensemble, &["inspect", "--lock", "/observe/stranger/lock"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.len() < 3_000 && !text.contains('\u{202e}'), "{text}");
}

#[test]
fn what_cannot_be_asked_or_is_not_there_ends_with_one_sentence() {
    let ensemble = ensemble();
    for arguments in [
        &["inspect", "--lock", "/observe/none"][..],
        &["history", "--lock", "/observe/none"],
        &["handoff", "--lock", "/observe/none"],
    ] {
        let (code, text) = ask(&ensemble, arguments);
        assert_eq!(code, 69, "{text}");
        assert!(
            text.starts_with("lockkeeper: there is no node /observe/none"),
            "{text}"
        );
    }
    let (code, text) = client(&["list", "--connect", "127.0.0.1:1"]);
    assert_eq!((code, text.lines().count()), (69, 1), "{text}");
    assert!(
        text.contains("no server of --connect 127.0.0.1:1 answers"),
        "{text}"
    );
    let (code, text) = client(&["list", "--connect", "127.0.0.1:1", "--lock", "x"]);
    assert_eq!(code, 64, "{text}");
}
