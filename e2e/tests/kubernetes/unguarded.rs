//! The uninstallation by a user who wants the workloads to go on without their locks.

use lockkeeper_product::chart::SYSTEM;
use lockkeeper_product::space::{BOUND, Mend, Space, calm};
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

use crate::charts::left_of_the_chart;

const PAGE: &str = include_str!("../../../docs/lifecycle.md");

#[test]
fn an_uninstallation_that_allows_it_removes_all_and_guards_only_the_pods_that_run() {
    let Some(space) = Space::alone("unguarded") else {
        return;
    };
    let installation = space.installation;
    let mended = Mend(|| installation.install(&json!({})));
    // A pod without a guard has no token of the lock.
    let pair = space.pair(&calm(), &["--token", "1"]);
    let pods = || {
        let names = ["get", "pods", "--output=jsonpath={.items[*].metadata.name}"];
        let names = space.kubectl(&names).unwrap();
        names.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let before = pods();
    let standby = before.iter().find(|pod| **pod != pair.holder).unwrap();

    let (_, value) = PAGE.split_once(" --set uninstall.").unwrap();
    let (value, _) = value.split_once('`').unwrap();
    let value = format!("--set=uninstall.{value}");
    installation
        .upgrade_with(&[&value, "--wait", "--timeout=3m"])
        .unwrap();
    let system = format!("--namespace={SYSTEM}");
    installation
        .helm(&["uninstall", "lockkeeper", &system, "--wait", "--timeout=3m"])
        .unwrap();
    assert_eq!(left_of_the_chart(&space), [""; 0]);
    let selector = "--selector=app.kubernetes.io/name=lockkeeper";
    let left = ["get", "deployments,services", &system, selector, "--output=name"];
    assert_eq!(space.cluster.kubectl(&left).unwrap(), "");
    space.assert_undisturbed(&pair);

    // The next pod runs beside the holder.
    space
        .kubectl(&["delete", "pod", standby, "--wait=false"])
        .unwrap();
    let begins = wait_for(BOUND, || {
        let begins = space.begins();
        (begins.len() > 1).then_some(begins)
    });
    let begins = begins.unwrap_or_else(|| panic!("{}", space.story()));
    let (_, next) = &begins[1];
    assert_eq!(begins.len(), 2, "{begins:?}");
    assert!(!before.contains(next), "{begins:?}");
    let sidecars = "--output=jsonpath={.spec.initContainers[*].name}{.spec.containers[*].name}";
    assert_eq!(space.kubectl(&["get", "pod", next, sidecars]).unwrap(), "app");
    // Before Kubernetes 1.35 another one, which copies the binary, is before these.
    let sidecars = space.kubectl(&["get", "pod", &pair.holder, sidecars]).unwrap();
    assert!(sidecars.ends_with("lockkeeperapp"), "{sidecars}");

    // A lock cannot be deleted without an operator.
    space
        .kubectl(&["delete", "dlock", "report", "--wait=false"])
        .unwrap();
    let finalizers = "{.metadata.deletionTimestamp} {.metadata.finalizers[*]}";
    let lock = space.part_of_lock("report", finalizers);
    assert!(
        lock.ends_with("Z lockkeeper.io/queue"),
        "it waits for its operator: {lock}"
    );
    space
        .kubectl(&["delete", "deployment", "report", "--timeout=120s"])
        .unwrap();
    drop(mended);
    space
        .kubectl(&["wait", "dlock", "report", "--for=delete", "--timeout=180s"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.installation.story()));
}
