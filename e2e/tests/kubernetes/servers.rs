//! Servers of the ensemble, the API server and the operator, while locks are held.

use std::io::ErrorKind;
use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_product::space::{BOUND, GUARD, Mend, Space, calm, short};
use lockkeeper_testbed::ensemble::{SUPER, block_on, connector};
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Signal, kill_process};
use serde_json::json;

/// How long there is no quorum.
const OUTAGE: Duration = Duration::from_secs(60);

/// Between two changes of a workload that make its controller try again.
const BETWEEN_CHANGES: Duration = Duration::from_secs(5);

#[test]
fn a_lost_leader_of_the_ensemble_costs_nobody_the_lock() {
    let Some(space) = Space::alone("leader-lost") else {
        return;
    };
    let pair = space.pair(&calm(), &[]);
    let ensemble = space.installation.ensemble();
    let (leader, _) = ensemble.wait_for_roles().unwrap();
    let restarted = Mend(|| ensemble.restart(leader));
    ensemble.kill(leader);
    ensemble.wait_for_quorum().unwrap();
    space.assert_undisturbed(&pair);
    drop(restarted);
    space.assert_undisturbed(&pair);
}

#[test]
fn without_a_quorum_for_a_minute_the_application_is_stopped_in_time_and_runs_again_with_it() {
    let Some(space) = Space::alone("no-quorum") else {
        return;
    };
    let pair = space.pair(&short(), &["--ignore-sigterm"]);
    let guard = space.process(&pair.holder, GUARD);
    let ensemble = space.installation.ensemble();
    let restarted = Mend(|| [1, 2].into_iter().try_for_each(|server| ensemble.restart(server)));
    for server in [1, 2] {
        ensemble.kill(server);
    }
    let killed = BootInstant::now();
    // The application is a child of the guard: it has no child left, or has ended for it and with it.
    let children = format!("/proc/{0}/task/{0}/children", guard.as_raw_pid());
    let gone = || match std::fs::read_to_string(&children) {
        Ok(children) => children.trim().is_empty().then_some(()),
        Err(error) => (error.kind() == ErrorKind::NotFound).then_some(()),
    };
    wait_for(BOUND, gone).unwrap_or_else(|| panic!("{}", space.story()));
    let unreachable = "{.status.conditions[?(@.type=='EnsembleReachable')].status}";
    space.wait_for_lock("report", unreachable, |status| status == "False");
    // Pauses between attempts have become long by then.
    std::thread::sleep((killed + OUTAGE).saturating_since(BootInstant::now()));
    drop(restarted);
    let (token, _, _) = space.wait_until_it_runs(pair.token);
    assert!(token > pair.token);
    space.wait_for_lock("report", unreachable, |status| status == "True");
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}

#[test]
fn a_lock_changes_hands_while_there_is_no_api_server() {
    let Some(space) = Space::alone("no-api") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    let guard = space.process(&pair.holder, GUARD);
    let started = Mend(|| {
        space.cluster.start_again("kube-apiserver")?;
        space.wait_for_nodes()
    });
    space.cluster.kill("kube-apiserver").unwrap();
    kill_process(guard, Signal::KILL).unwrap();
    let next = wait_for(BOUND, || {
        space.begins().into_iter().find(|(token, _)| *token > pair.token)
    });
    drop(started);
    let (_, next) = next.expect("the other one runs");
    assert_ne!(next, pair.holder);
    space.wait_until_held_by(&next, "report");
    space.assert_handed_over(&pair);
}

#[test]
fn without_the_operator_locks_change_hands_marked_pods_are_refused_and_others_are_not() {
    let Some(space) = Space::alone("no-operator") else {
        return;
    };
    let pair = space.pair(&json!({}), &[]);
    let scale = |replicas: &str| {
        let replicas = format!("--replicas={replicas}");
        let words = [
            "scale",
            "deployment",
            "lockkeeper",
            "--namespace",
            SYSTEM,
            &replicas,
        ];
        space.cluster.kubectl(&words).map(drop)
    };
    let back = Mend(|| scale("2"));
    scale("0").unwrap();
    let endpoints = [
        "get",
        "endpointslices",
        "--namespace",
        SYSTEM,
        "--output=jsonpath={.items[*].endpoints[*].addresses}",
    ];
    space.cluster.wait_for(BOUND, &endpoints, str::is_empty).unwrap();

    // A deleted pod hands over; its replacement is refused until the operator is back.
    space
        .kubectl(&["delete", "pod", &pair.holder, "--wait=false"])
        .unwrap();
    let (_, next) = space.assert_handed_over(&pair);
    space.wait_until_refused("pods.lockkeeper.io");
    // Marked pods, and workloads that get a mark, are refused; unmarked objects are admitted.
    let plain = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "plain", "namespace": space.name },
        "spec": space.pod(&[space.recording(&["--token", "1"])]),
    });
    let mut marked = plain.clone();
    marked["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "report" });
    let refused = space.cluster.apply(&marked.to_string()).unwrap_err().to_string();
    assert!(refused.contains("pods.lockkeeper.io"), "{refused}");
    let mut unmarked = space.workload("Deployment", "later", Some(0), space.pod(&[space.recording(&[])]));
    unmarked["metadata"]["annotations"] = json!({});
    space.apply(&[plain, unmarked]);
    let refused = space
        .kubectl(&["annotate", "deployment", "later", "lockkeeper.io/lock=report"])
        .unwrap_err()
        .to_string();
    assert!(refused.contains("keys.lockkeeper.io"), "{refused}");
    // A workload whose pods are marked already can be changed.
    space
        .kubectl(&["scale", "deployment", "report", "--replicas=3"])
        .unwrap();
    space
        .kubectl(&["annotate", "deployment", "report", "example.com/note=1"])
        .unwrap();

    drop(back);
    let mark = ["annotate", "deployment", "later", "lockkeeper.io/lock=report"];
    wait_for(BOUND, || space.kubectl(&mark).ok()).expect("the operator admits again");
    // The ReplicaSet's controller pauses for up to 16 min 40 s after so many refusals. A change makes it try at once; it may
    // be refused once more.
    let mut note = 1;
    let admitted = || {
        note += 1;
        let note = format!("example.com/note={note}");
        let change = ["annotate", "deployment", "report", &note, "--overwrite"];
        space.kubectl(&change).ok()?;
        let names = ["get", "pods", "--selector=app=worker", "--output=name"];
        let pods = space.kubectl(&names).ok()?.lines().count();
        if pods < 3 {
            std::thread::sleep(BETWEEN_CHANGES);
        }
        (pods == 3).then_some(())
    };
    wait_for(BOUND, admitted).unwrap_or_else(|| panic!("{}", space.story()));
    space.wait_until_waiting_behind(&next, "report", 2);
}

#[test]
fn a_contender_that_somebody_deletes_is_stopped_at_once_and_the_other_one_runs() {
    let Some(space) = Space::new("by-hand") else {
        return;
    };
    let pair = space.pair(&json!({}), &["--ignore-sigterm"]);
    let lives = pair.deletions.lives();
    let node = lives.iter().find(|life| life.token == pair.token).unwrap();
    let path = format!("/lockkeeper/locks/{}/report/{}", space.name, node.name);
    let ensemble = space.installation.ensemble();
    let server = ensemble.address(0).to_string();
    block_on(ensemble.observer(), || async {
        let client = connector()
            .with_auth("digest", SUPER.as_bytes())
            .connect(&server)
            .await?;
        client.delete(&path, None).await
    })
    .unwrap()
    .unwrap();
    let (_, next, _) = space.wait_until_it_runs(pair.token);
    assert_ne!(next, pair.holder);
    let deleted = pair.deletions.wait_for_deletion(pair.token, BOUND).unwrap();
    let of_holder = space
        .records()
        .into_iter()
        .filter(|record| record.token == pair.token);
    let last = of_holder.map(|record| record.at).max().unwrap();
    println!(
        "its last instruction came {:?} after the deletion",
        last.saturating_since(deleted)
    );
    // The documented exception: the application is not stopped before the deletion, but it ends.
    space.wait_until_waiting("report", 1);
    let begins = space.begins_after(&pair);
    assert_eq!(begins.len(), 1, "{begins:?}");
}
