//! Who has held a lock, told on a machine that has no keeper.

use lockkeeper_product::worker::keeper_of;
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use zookeeper_client::{Acls, CreateMode};

use crate::harness::{BOUND, Run, ensemble, wait_for_contenders, with_client};
use crate::remote::{SLEEP, ask, json, run, wait_until_held};

#[test]
fn a_release_a_handoff_and_a_crash_are_told_with_who_held_when_and_how_it_ended() {
    let ensemble = ensemble();
    let lock = "/observe/history";
    let history = || json(&ensemble, &["history", "--lock", lock]);
    let mut brief = Run::start(&ensemble, "history-1", lock, &[], &["true"]);
    assert_eq!(brief.code(), 0, "{}", brief.stderr());
    let _second = run(&ensemble, "history-2", lock, 0);
    wait_until_held(&ensemble, lock);
    let third = run(&ensemble, "history-3", lock, 1);
    let (code, text) = ask(&ensemble, &["handoff", "--lock", lock]);
    assert_eq!(code, 0, "{text}");
    wait_for_contenders(&ensemble, lock, 2);
    // The machine of the third one, so to speak: its guard and its keeper, which cannot release any more.
    let guard = third.process.pid();
    let keeper = keeper_of(guard).unwrap();
    kill_process(keeper, Signal::STOP).unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    let is_told = || {
        let told = history();
        let is_held = told["holders"][0]["state"] == "held";
        (is_held && told["history"].as_array()?.len() == 3).then_some(told)
    };
    let told = wait_for(BOUND, is_told).unwrap_or_else(|| panic!("{}", history()));
    assert_eq!(told["lock"], lock);
    let past = told["history"].as_array().unwrap();
    let ends: Vec<_> = past.iter().map(|one| one["ended"].as_str().unwrap()).collect();
    assert_eq!(ends, ["TakenOver", "HandedOver", "Released"], "{told}");
    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    for one in past {
        assert_eq!(one["host"], host.as_str());
        // In RFC 3339, of one machine.
        assert!(
            one["since"].as_str().unwrap() <= one["until"].as_str().unwrap(),
            "{one}"
        );
    }
    assert_eq!(past[0]["takenBy"], host.as_str());
    assert!(
        past[0]["silentMillis"]
            .as_u64()
            .is_some_and(|millis| millis > 1_000),
        "{told}"
    );
    let token = |one: &Value| one["fencingToken"].as_i64().unwrap();
    let tokens: Vec<_> = std::iter::once(&told["holders"][0])
        .chain(past)
        .map(token)
        .collect();
    assert!(tokens.is_sorted_by(|one, next| one > next), "{tokens:?}");
    let (code, text) = ask(&ensemble, &["history", "--lock", lock]);
    assert_eq!(code, 0, "{text}");
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert!(
        lines[0].starts_with("WHO ") && lines[0].ends_with("   ENDED"),
        "{text}"
    );
    assert!(lines[1].ends_with("   holds"), "{text}");
    assert!(
        lines[2].contains(&format!("TakenOver by {host} after ")),
        "{text}"
    );
    assert!(
        lines[3].ends_with("   HandedOver") && lines[4].ends_with("   Released"),
        "{text}"
    );
}

#[test]
fn a_holder_that_crashed_while_nobody_waited_is_told_as_lost_without_a_time() {
    let ensemble = ensemble();
    let lock = "/observe/history-lost";
    let history = || json(&ensemble, &["history", "--lock", lock]);
    let holder = Run::start(&ensemble, "lost-1", lock, &[], &SLEEP);
    wait_for_contenders(&ensemble, lock, 1);
    wait_until_held(&ensemble, lock);
    // Its record comes after it holds.
    let path = format!("{lock}-control");
    let is_recorded = || {
        let data = with_client(&ensemble, async |client| client.get_data(&path).await)
            .ok()?
            .0;
        let control: Value = serde_json::from_slice(&data).ok()?;
        (control["holds"].as_array()?.len() == 1).then_some(())
    };
    wait_for(BOUND, is_recorded).expect("it is recorded");
    assert_eq!(history()["history"], serde_json::json!([]), "it holds");
    let guard = holder.process.pid();
    let keeper = keeper_of(guard).unwrap();
    kill_process(keeper, Signal::STOP).unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    wait_for_contenders(&ensemble, lock, 0);
    let told = history();
    assert_eq!(told["holders"], serde_json::json!([]), "{told}");
    assert_eq!(told["history"][0]["ended"], "Lost", "{told}");
    assert!(told["history"][0].get("until").is_none(), "{told}");
}

#[test]
fn a_lock_without_a_history_says_so_and_a_wrong_control_node_is_refused_as_by_a_handoff() {
    let ensemble = ensemble();
    let (lock, other) = ("/observe/without-history", "/observe/no-control");
    with_client(&ensemble, async |client| {
        let open = || CreateMode::Persistent.with_acls(Acls::anyone_all());
        client.mkdir(lock, &open()).await?;
        client.create(other, b"port: 80", &open()).await
    })
    .unwrap();
    let (code, text) = ask(&ensemble, &["history", "--lock", lock]);
    assert_eq!(code, 0, "{text}");
    assert!(
        text.starts_with(&format!(
            "Nobody holds {lock}, and no former holder is recorded.\n"
        )),
        "{text}"
    );
    assert!(
        text.contains(&format!("there is no control node {lock}-control: ")),
        "{text}"
    );
    for (control, expected) in [(other, 64), ("/observe/nothing", 69)] {
        let (code, text) = ask(&ensemble, &["history", "--lock", lock, "--control", control]);
        assert_eq!((code, text.lines().count()), (expected, 1), "{text}");
        assert!(text.contains(control) && text.contains("--control"), "{text}");
    }
}
