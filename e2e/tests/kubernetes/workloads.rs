//! One pod of a workload runs at a time, whatever the workload is.

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::{Access, Moment, Record};
use lockkeeper_product::space::{APPLICATION, BOUND, Mend, Space};
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

#[test]
fn of_two_pods_of_an_annotated_deployment_one_runs_and_the_lock_is_shown() {
    let Some(space) = Space::new("one-of-two") else {
        return;
    };
    let pod = space.pod(&[space.recording(&[])]);
    space.apply(&[
        space.lock("report", &json!({})),
        space.workload("Deployment", "report", Some(2), pod),
    ]);
    let (token, holder) = space.wait_until_settled(1);
    let row = space.wait_for(&["get", "distributedlock", "report", "--no-headers"], |row| {
        row.contains(&holder)
    });
    assert!(row.contains(&token.to_string()), "{row}");
    space.wait_until_waiting("report", 1);
    space
        .kubectl(&["wait", "--for=condition=Held", "dlock/report", "--timeout=60s"])
        .unwrap();
    let row = space.wait_for(
        &[
            "get",
            "pods",
            "--label-columns=lockkeeper.io/role",
            "--no-headers",
        ],
        |rows| rows.contains("active") && rows.contains("standby"),
    );
    let active = row.lines().find(|row| row.ends_with("active")).unwrap();
    assert!(active.starts_with(&holder), "{row}");
    space.assert_exclusive();
}

#[test]
fn a_pod_that_nobody_marked_is_left_as_it_is() {
    let Some(space) = Space::new("unmarked") else {
        return;
    };
    let mut workload = space.workload(
        "Deployment",
        "plain",
        Some(1),
        space.pod(&[space.recording(&["--token", "1"])]),
    );
    workload["metadata"]["annotations"] = json!({});
    space.apply(&[workload]);
    space.wait_until_it_runs(0);
    let containers = "--output=jsonpath={.items[*].spec.initContainers[*].name}";
    assert_eq!(space.kubectl(&["get", "pods", containers]).unwrap(), "");
    assert_eq!(
        space
            .kubectl(&["get", "distributedlocks", "--output=name"])
            .unwrap(),
        ""
    );
}

#[test]
fn a_deployment_that_is_annotated_while_it_runs_is_put_behind_a_lock_made_for_it() {
    let Some(space) = Space::new("annotated") else {
        return;
    };
    let mut workload = space.workload(
        "Deployment",
        "report",
        Some(2),
        space.pod(&[space.recording(&["--token", "1"])]),
    );
    workload["metadata"]["annotations"] = json!({});
    space.apply(&[workload]);
    space
        .kubectl(&["rollout", "status", "deployment/report", "--timeout=120s"])
        .unwrap();

    // The recorder takes its token from its environment unless it is given one.
    let args = json!([{"op": "replace", "path": "/spec/template/spec/containers/0/command",
        "value": ["/program", "/records/guarded", "--name", "$(POD)"]}]);
    let annotate = ["annotate", "deployment", "report", "lockkeeper.io/lock=made"];
    let refused = space.kubectl(&annotate).unwrap_err().to_string();
    assert!(
        refused.contains("the lock of this Deployment would change from none to made while its pods run"),
        "{refused}"
    );
    space.scale_to_zero("report");
    space.kubectl(&annotate).unwrap();
    space
        .kubectl(&[
            "patch",
            "deployment",
            "report",
            "--type=json",
            "--patch",
            &args.to_string(),
        ])
        .unwrap();
    space
        .kubectl(&["scale", "deployment", "report", "--replicas=2"])
        .unwrap();
    space
        .kubectl(&["rollout", "status", "deployment/report", "--timeout=120s"])
        .unwrap();
    space.wait_until_waiting("made", 1);
    let guarded = space.records_of("guarded");
    assert!(check(&guarded, Rule::Exclusive).is_clean());

    let leave = ["annotate", "deployment", "report", "lockkeeper.io/lock-"];
    let refused = space.kubectl(&leave).unwrap_err().to_string();
    assert!(
        refused.contains("from made to none while its pods run"),
        "{refused}"
    );
    space.scale_to_zero("report");
    space.kubectl(&leave).unwrap();
    let sidecars = "--output=jsonpath={.spec.template.metadata.annotations}{.spec.template.metadata.labels}";
    space.wait_for(&["get", "deployment", "report", sidecars], |keys| {
        !keys.contains("lockkeeper.io")
    });
}

#[test]
fn a_statefulset_whose_pods_come_one_after_the_other_has_one_that_runs() {
    let Some(space) = Space::new("stateful") else {
        return;
    };
    let mut workload = space.workload(
        "StatefulSet",
        "report",
        Some(3),
        space.pod(&[space.recording(&[])]),
    );
    workload["spec"]["serviceName"] = json!("report");
    space.apply(&[space.lock("report", &json!({})), workload]);
    let (token, holder) = space.wait_until_settled(2);
    assert_eq!(holder, "report-0");
    let next = space.assert_replaced(token, &holder);
    assert_eq!(next, "report-1", "first come, first served");
}

#[test]
fn a_daemonset_runs_on_one_node_and_goes_to_the_other_when_its_pod_is_deleted() {
    let Some(space) = Space::new("daemon") else {
        return;
    };
    let workload = space.workload("DaemonSet", "report", None, space.pod(&[space.recording(&[])]));
    space.apply(&[space.lock("report", &json!({})), workload]);
    let (token, holder) = space.wait_until_settled(1);
    space.assert_replaced(token, &holder);
}

#[test]
fn the_pods_of_a_job_run_one_after_the_other_and_the_job_completes() {
    let Some(space) = Space::new("job") else {
        return;
    };
    let mut pod = space.pod(&[space.recording(&["--hold", "500ms"])]);
    pod["restartPolicy"] = json!("Never");
    let mut job = space.workload("Job", "report", None, pod);
    job["apiVersion"] = json!("batch/v1");
    // A Job selects its pods itself.
    job["spec"].as_object_mut().unwrap().remove("selector");
    job["spec"]["completions"] = json!(3);
    job["spec"]["parallelism"] = json!(3);
    space.apply(&[space.lock("report", &json!({})), job]);
    space
        .kubectl(&["wait", "--for=condition=Complete", "job/report", "--timeout=180s"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    let report = space.assert_exclusive();
    assert_eq!(report.holds.len(), 3);
    assert!(report.holds.iter().all(|hold| hold.ended));
}

#[test]
fn the_pod_of_a_job_that_loses_the_lock_runs_its_command_again_and_the_loss_is_no_failure() {
    let Some(space) = Space::alone("job-loses") else {
        return;
    };
    let lock = json!({ "leaseDuration": "3s", "stopGrace": "400ms" });
    space.apply(&[space.lock("report", &lock)]);
    let is_shown = (1..=3).any(|round| completes_after_a_loss(&space, &format!("round-{round}")));
    assert!(
        is_shown,
        "its application always outlives SIGKILL\n{}",
        space.story()
    );
    // More than two if the machine was so busy that another lease ended.
    assert!(space.assert_exclusive().holds.len() >= 2);
}

/// False if the guard has ended its container because SIGKILL was not seen to work within 0.1 s, as may happen on a busy
/// machine. That fails a pod of this Job, as documented.
fn completes_after_a_loss(space: &Space, name: &str) -> bool {
    let last = space.begins().last().map_or(0, |(token, _)| *token);
    let mut pod = space.pod(&[space.recording(&["--hold", "60s"])]);
    pod["restartPolicy"] = json!("Never");
    let mut job = space.workload("Job", name, None, pod);
    job["apiVersion"] = json!("batch/v1");
    job["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("report");
    job["spec"].as_object_mut().unwrap().remove("selector");
    job["spec"]["backoffLimit"] = json!(0);
    space.apply(&[job]);
    let (token, holder, _) = space.wait_until_it_runs(last);
    let node = space.node_of(&holder);
    let process = space.process(&holder, APPLICATION);
    let healed = Mend(|| Ok(space.installation.heal_to_ensemble(node)?));
    space.installation.cut_from_ensemble(node).unwrap();
    let folder = std::path::PathBuf::from(format!("/proc/{}", process.as_raw_pid()));
    wait_for(BOUND, || (!folder.exists()).then_some(())).unwrap_or_else(|| panic!("{}", space.story()));
    drop(healed);
    let code = "--output=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
    let goes_on = || {
        if let Some((_, again)) = space.begins().into_iter().find(|(newer, _)| *newer > token) {
            assert_eq!(again, holder, "{}", space.story());
            return Some(true);
        }
        let code = space.kubectl(&["get", "pod", &holder, code]).ok()?;
        (code == "75").then_some(false)
    };
    if !wait_for(BOUND, goes_on).unwrap_or_else(|| panic!("{}", space.story())) {
        return false;
    }
    let job = format!("job/{name}");
    space
        .kubectl(&["wait", "--for=condition=Complete", &job, "--timeout=180s"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    true
}

#[test]
fn jobs_of_a_cronjob_that_come_together_run_one_after_the_other() {
    let Some(space) = Space::new("cronjob") else {
        return;
    };
    let mut pod = space.pod(&[space.recording(&["--hold", "500ms"])]);
    pod["restartPolicy"] = json!("OnFailure");
    space.apply(&[
        space.lock("report", &json!({})),
        json!({
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": { "name": "report", "annotations": { "lockkeeper.io/lock": "report" }, "namespace": space.name },
            "spec": {
                // The schedule never comes: the test starts the Jobs by hand.
                "schedule": "0 0 1 1 *",
                "jobTemplate": { "spec": { "template": { "spec": pod } } },
            },
        }),
    ]);
    for name in ["first", "second"] {
        space
            .kubectl(&["create", "job", name, "--from=cronjob/report"])
            .unwrap();
    }
    for name in ["job/first", "job/second"] {
        space
            .kubectl(&["wait", "--for=condition=Complete", name, "--timeout=180s"])
            .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    }
    assert_eq!(space.assert_exclusive().holds.len(), 2);
}

#[test]
fn of_four_pods_of_a_semaphore_two_run_and_never_three() {
    let Some(space) = Space::new("semaphore") else {
        return;
    };
    let workload = space.workload(
        "Deployment",
        "report",
        Some(4),
        space.pod(&[space.recording(&[])]),
    );
    space.apply(&[space.lock("report", &json!({ "maxHolders": 2 })), workload]);
    space.wait_until_waiting("report", 2);
    let holders = space.holders("report");
    assert_eq!(holders.len(), 2, "{holders:?}");
    // A keeper says that it holds before its program has begun.
    let begun = |count: usize| wait_for(BOUND, || (space.begins().len() >= count).then_some(()));
    begun(2).unwrap_or_else(|| panic!("{}", space.story()));
    space
        .kubectl(&["delete", "pod", &holders[0], &holders[1], "--wait=false"])
        .unwrap();
    let others = || {
        let now = space.holders("report");
        (now.len() == 2 && !now.iter().any(|name| holders.contains(name))).then_some(())
    };
    wait_for(BOUND, others).unwrap_or_else(|| panic!("{}", space.story()));
    begun(4).unwrap_or_else(|| panic!("{}", space.story()));
    let report = check(&space.records(), Rule::AtMost(2));
    assert!(report.is_clean(), "{:#?}", report.violations);
}

#[test]
fn readers_run_together_and_a_writer_alone() {
    let Some(space) = Space::new("readers") else {
        return;
    };
    let reading = space.recording(&["--read"]);
    let mut readers = space.workload("Deployment", "readers", Some(2), space.pod(&[reading]));
    readers["metadata"]["annotations"] = json!({
        "lockkeeper.io/lock": "report", "lockkeeper.io/access": "read",
    });
    let mut writer = space.workload(
        "Deployment",
        "writer",
        Some(1),
        space.pod(&[space.recording(&["--hold", "300ms"])]),
    );
    writer["metadata"]["annotations"] = json!({ "lockkeeper.io/lock": "report" });
    space.apply(&[space.lock("report", &json!({ "mode": "ReadWrite" })), readers]);
    let both = || (space.holders("report").len() == 2).then_some(());
    wait_for(BOUND, both).unwrap_or_else(|| panic!("{}", space.story()));

    space.apply(&[writer]);
    space.wait_until_waiting("report", 1);
    space
        .kubectl(&["scale", "deployment", "readers", "--replicas=0"])
        .unwrap();
    let written = || {
        let is_writer = |record: Record| {
            matches!(
                record.moment,
                Moment::Begin {
                    access: Access::Write,
                    ..
                }
            )
        };
        space.records().into_iter().any(is_writer).then_some(())
    };
    wait_for(BOUND, written).unwrap_or_else(|| panic!("{}", space.story()));
    let report = check(&space.records(), Rule::ReadWrite);
    assert!(report.is_clean(), "{:#?}", report.violations);
}
