//! The charts, by the real helm: install, upgrade, rollback, uninstall.

use std::path::Path;
use std::process::Command;

use lockkeeper_e2e::installation::SYSTEM;
use lockkeeper_e2e::space::{Mend, Space};
use serde_json::json;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn an_upgrade_a_rollback_and_an_uninstallation_cost_nobody_the_lock() {
    let Some(space) = Space::alone("charts") else {
        return;
    };
    let installation = space.installation;
    let mended = Mend(|| installation.install(&json!({})));
    // The charts of the commit before this one, where there is one.
    let older = tempfile::tempdir().unwrap();
    if unpack_parent(older.path()) {
        installation.install_from(older.path(), &json!({})).unwrap();
    } else {
        println!("SKIPPED: upgrade from the previous commit's charts (a checkout without history)");
    }
    let pair = space.pair(&json!({}), &[]);
    installation
        .install(&json!({ "podAnnotations": { "example.com/upgraded": "yes" } }))
        .unwrap();
    space.assert_undisturbed(&pair);
    let system = format!("--namespace={SYSTEM}");
    installation
        .helm(&["rollback", "lockkeeper", &system, "--wait", "--timeout=3m"])
        .unwrap();
    space.assert_undisturbed(&pair);

    installation
        .helm(&["uninstall", "lockkeeper", &system, "--wait"])
        .unwrap();
    installation
        .helm(&["uninstall", "lockkeeper-crds", &system])
        .unwrap();
    space.assert_undisturbed(&pair);
    let left = "mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings";
    let selector = "--selector=app.kubernetes.io/name=lockkeeper";
    assert_eq!(
        space
            .cluster
            .kubectl(&["get", left, selector, "--output=name"])
            .unwrap(),
        ""
    );
    // Locks are what users have made: they stay, and so does what describes them.
    assert_eq!(
        space
            .kubectl(&["get", "distributedlocks", "--output=name"])
            .unwrap()
            .trim(),
        "distributedlock.lockkeeper.io/report"
    );
    // Pods change hands without an operator, and it takes over what it finds.
    space.release(&pair.holder);
    let (_, next) = space.assert_handed_over(&pair);
    drop(mended);
    space.eventually(
        &[
            "get",
            "dlock",
            "report",
            "--output=jsonpath={.status.holders[*].pod}",
        ],
        |holder| holder == next,
    );
}

#[test]
fn where_there_are_no_image_volumes_the_binary_is_copied_into_the_pod() {
    let Some(space) = Space::alone("copied") else {
        return;
    };
    let mended = Mend(|| space.installation.install(&json!({})));
    space
        .installation
        .install(&json!({ "sidecar": { "binary": "copy" } }))
        .unwrap();
    let pair = space.pair(&json!({}), &[]);
    let names = "--output=jsonpath={.spec.initContainers[*].name}";
    let names = space.kubectl(&["get", "pod", &pair.holder, names]).unwrap();
    assert_eq!(names, "lockkeeper-install lockkeeper");
    space
        .kubectl(&["delete", "pod", &pair.holder, "--wait=false"])
        .unwrap();
    space.assert_other_runs(&pair);
    drop(mended);
}

#[test]
fn the_small_ensemble_of_the_chart_carries_locks_and_survives_the_loss_of_a_server() {
    let Some(space) = Space::alone("small-ensemble") else {
        return;
    };
    let installation = space.installation;
    let image = installation.push_zookeeper().unwrap();
    // Outside and inside are two ensembles: nothing moves from one to the other while it is held.
    let mended = Mend(|| installation.install(&json!({})));
    installation
        .install(&json!({ "zookeeper": {
            "connect": "",
            "tickTime": "1s",
            "server": { "enabled": true, "replicas": 3, "image": image },
        } }))
        .unwrap();
    let pod = space.pod(&[space.recording(&[])]);
    space.apply(&[
        space.lock("report", &json!({ "sessionTimeout": "15s" })),
        space.workload("Deployment", "report", Some(2), pod),
    ]);
    space.wait_until_waiting("report", 1);
    let (token, holder, _) = space.wait_until_it_runs(0);
    let server = ["delete", "pod", "lockkeeper-zookeeper-0", "--namespace", SYSTEM];
    space.cluster.kubectl(&server).unwrap();
    space.assert_somebody_runs();
    space.assert_replaced(token, &holder);
    space
        .kubectl(&["delete", "deployment/report", "dlock/report", "--timeout=120s"])
        .unwrap();
    drop(mended);
}

/// Unpacks the charts of the parent commit; false where there is none.
fn unpack_parent(folder: &Path) -> bool {
    let script = "git archive HEAD^ charts | tar --extract --directory \"$0\"";
    Command::new("bash")
        .args(["-o", "pipefail", "-c", script])
        .arg(folder)
        .current_dir(WORKSPACE)
        .status()
        .is_ok_and(|status| status.success())
}
