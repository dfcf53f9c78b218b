//! The charts, by the real helm: install, upgrade, rollback, uninstall.

use std::path::Path;
use std::process::Command;

use lockkeeper_product::binaries;
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_product::space::{BOUND, Mend, Space, calm};
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

#[test]
fn an_upgrade_a_rollback_and_an_uninstallation_cost_nobody_the_lock() {
    let Some(space) = Space::alone("charts") else {
        return;
    };
    let installation = space.installation;
    let mended = Mend(|| installation.install(&json!({})));
    let older = tempfile::tempdir().unwrap();
    unpack_older(older.path());
    installation.install_from(older.path(), &json!({})).unwrap();
    let pair = space.pair(&calm(), &[]);
    installation
        .install(&json!({ "podAnnotations": { "example.com/upgraded": "yes" } }))
        .unwrap();
    installation.assert_spread();
    space.assert_undisturbed(&pair);
    let system = format!("--namespace={SYSTEM}");
    // Zero is the revision before.
    installation.roll_back("0").unwrap();
    space.assert_undisturbed(&pair);

    // The uninstallation is refused while pods are behind a lock, and names them.
    let refused = installation
        .helm(&["uninstall", "lockkeeper", &system, "--wait", "--timeout=3m"])
        .expect_err("there is a workload behind a lock");
    let job = ["logs", "job/lockkeeper-uninstall-before", &system];
    let why = space.cluster.kubectl(&job).unwrap();
    assert!(why.contains("deployment charts/report"), "{why}\n{refused:#}");
    // Its rights are gone, and its log stays.
    let rights = "clusterroles,clusterrolebindings,serviceaccounts";
    let rights = ["get", rights, &system, "--output=name"];
    let rights = space.cluster.kubectl(&rights).unwrap();
    assert!(!rights.contains("lockkeeper-uninstall"), "{rights}");
    space.assert_undisturbed(&pair);
    // From then on helm upgrades the release only after the user has kept it as the hook's message says.
    let stuck = installation
        .install(&json!({}))
        .expect_err("helm has begun to delete it");
    assert!(
        format!("{stuck:#}").contains("has no deployed releases"),
        "{stuck:#}"
    );
    assert!(
        why.contains(&format!(
            "`helm rollback lockkeeper --namespace {SYSTEM} REVISION`"
        )),
        "{why}"
    );
    installation.roll_back(&installation.revision().unwrap()).unwrap();
    // If they are switched off, the policies that outlive the chart refuse nothing.
    let off = json!({ "admissionPolicy": { "enabled": false } });
    installation.install(&off).unwrap();
    let actions = "--output=jsonpath={.items[*].spec.validationActions[*]}";
    let bindings = [
        "get",
        "validatingadmissionpolicybindings",
        actions,
        "lockkeeper-guarded",
        "lockkeeper-workloads",
    ];
    assert_eq!(space.cluster.kubectl(&bindings).unwrap(), "Audit Audit");
    let (code, said) = checked(&space);
    assert!(code == 0 && said.contains("\npolicies      warning   "), "{said}");
    installation.install(&json!({})).unwrap();
    // A replica may still be starting, or answer late.
    let good = || {
        let (code, said) = checked(&space);
        (code == 0 && said.lines().all(|line| line.contains("   good      "))).then_some(())
    };
    wait_for(BOUND, good).unwrap_or_else(|| panic!("{}", checked(&space).1));
    space.assert_undisturbed(&pair);
    // Marked pods also do not run unguarded if the hooks are skipped.
    installation
        .helm(&["uninstall", "lockkeeper", &system, "--wait", "--no-hooks"])
        .unwrap();
    installation
        .helm(&["uninstall", "lockkeeper-crds", &system])
        .unwrap();
    space.assert_undisturbed(&pair);
    let (code, said) = checked(&space);
    for missing in ["operator", "webhooks"] {
        assert!(said.contains(&format!("\n{missing:<11}   PROBLEM   ")), "{said}");
    }
    assert!(
        code == 69 && said.contains("2 of 10 checks found a problem"),
        "{said}"
    );
    assert_eq!(
        left_of_the_chart(&space),
        [
            "validatingadmissionpolicy.admissionregistration.k8s.io/lockkeeper-guarded",
            "validatingadmissionpolicy.admissionregistration.k8s.io/lockkeeper-workloads",
            "validatingadmissionpolicybinding.admissionregistration.k8s.io/lockkeeper-guarded",
            "validatingadmissionpolicybinding.admissionregistration.k8s.io/lockkeeper-workloads",
        ]
    );
    space
        .kubectl(&["rollout", "restart", "deployment/report"])
        .unwrap();
    space.wait_until_refused("nothing would stop it from running twice");
    space.assert_undisturbed(&pair);
    space.kubectl(&["rollout", "undo", "deployment/report"]).unwrap();
    // Users have made the locks, so they stay, and the CRD stays too.
    assert_eq!(
        space
            .kubectl(&["get", "distributedlocks", "--output=name"])
            .unwrap()
            .trim(),
        "distributedlock.lockkeeper.io/report"
    );
    // The lock changes hands without an operator, and a new operator takes over what it finds.
    space.release(&pair.holder);
    let (_, next) = space.assert_handed_over(&pair);
    drop(mended);
    space.wait_until_held_by(&next, "report");
}

/// Exit code and output of `kubectl lockkeeper check`.
fn checked(space: &Space) -> (i32, String) {
    let mut command = Command::new(binaries::plugin().unwrap());
    command.arg("check").arg("--kubeconfig");
    let said = command.arg(space.cluster.kubeconfig()).output().unwrap();
    let words = String::from_utf8([said.stdout, said.stderr].concat()).unwrap();
    (said.status.code().unwrap(), words)
}

pub fn left_of_the_chart(space: &Space) -> Vec<String> {
    let kinds = "mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,clusterroles,clusterrolebindings";
    let selector = "--selector=app.kubernetes.io/name=lockkeeper";
    let names = space
        .cluster
        .kubectl(&["get", kinds, selector, "--output=name"])
        .unwrap();
    names.lines().map(str::to_owned).collect()
}

#[test]
fn when_nothing_is_behind_a_lock_the_chart_goes_and_no_namespace_waits_for_it() {
    let Some(space) = Space::alone("removed") else {
        return;
    };
    let installation = space.installation;
    let mended = Mend(|| installation.install(&json!({})));
    let pair = space.pair(&json!({}), &["--token", "1"]);
    space.scale_to_zero("report");
    space
        .kubectl(&["annotate", "deployment/report", "lockkeeper.io/lock-"])
        .unwrap();
    space
        .kubectl(&["scale", "deployment/report", "--replicas=2"])
        .unwrap();
    space
        .kubectl(&["rollout", "status", "deployment/report", "--timeout=120s"])
        .unwrap();
    // Wait for workloads of earlier tests, whose namespaces may still be terminating.
    let behind = [
        "get",
        "pods,deployments,statefulsets,daemonsets,cronjobs,jobs",
        "--all-namespaces",
        "--output=jsonpath={.items[*].metadata.labels.lockkeeper\\.io/lock}{.items[*].metadata.annotations.lockkeeper\\.io/lock}",
    ];
    space.cluster.wait_for(BOUND, &behind, str::is_empty).unwrap();
    let system = format!("--namespace={SYSTEM}");
    installation
        .helm(&["uninstall", "lockkeeper", &system, "--wait", "--timeout=3m"])
        .unwrap_or_else(|error| panic!("{error:#}\n{}", installation.story()));
    assert_eq!(left_of_the_chart(&space), [""; 0]);
    let lock = space.part_of_lock("report", "{.metadata.name}:{.metadata.finalizers}");
    assert_eq!(lock, "report:", "a lock waits for an operator that is gone");
    drop(pair);
    space
        .cluster
        .kubectl(&["delete", "namespace", &space.name, "--timeout=120s"])
        .unwrap();
    drop(mended);
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
    // The ensembles outside and inside of the cluster differ: a lock does not move from one to the other
    // while it is held.
    let mended = Mend(|| installation.install(&json!({})));
    installation
        .install(&json!({ "zookeeper": {
            "connect": "",
            "tickTime": "1s",
            "server": { "enabled": true, "replicas": 3, "image": image },
        } }))
        .unwrap();
    // The pod template does not change with the chart's version, so that an upgrade restarts no server.
    let labels = "--output=jsonpath={.spec.template.metadata.labels}";
    let system = format!("--namespace={SYSTEM}");
    let set = ["get", "statefulset", "lockkeeper-zookeeper", &system, labels];
    let labels = space.cluster.kubectl(&set).unwrap();
    assert!(
        !labels.contains("version") && !labels.contains("chart"),
        "{labels}"
    );
    // With its shorter tick it grants as much as with the default one.
    let ask = "echo conf | nc -w 2 127.0.0.1 2181";
    let pod = ["exec", "lockkeeper-zookeeper-0", &system, "--", "sh", "-c", ask];
    let granted = |settings: &str| settings.contains("maxSessionTimeout=40000");
    space.cluster.wait_for(BOUND, &pod, granted).unwrap();
    // A server keeps its data on its claim, if it has one.
    let rendered = installation
        .helm(&[
            "template",
            "lockkeeper",
            &format!("{WORKSPACE}/charts/lockkeeper"),
            "--show-only=templates/zookeeper.yaml",
            "--set=zookeeper.server.enabled=true,zookeeper.server.storage=1Gi,zookeeper.authSecret=given",
        ])
        .unwrap();
    assert!(
        rendered.contains("{ name: ZOO_DATA_LOG_DIR, value: /data/log }")
            && rendered.contains("{ name: data, mountPath: /data }")
            && !rendered.contains("emptyDir"),
        "{rendered}"
    );
    let pod = space.pod(&[space.recording(&[])]);
    space.apply(&[
        space.lock("report", &calm()),
        space.workload("Deployment", "report", Some(2), pod),
    ]);
    let (token, holder) = space.wait_until_settled(1);
    let server = ["delete", "pod", "lockkeeper-zookeeper-0", "--namespace", SYSTEM];
    space.cluster.kubectl(&server).unwrap();
    space.assert_somebody_runs();
    space.assert_replaced(token, &holder);
    space
        .kubectl(&["delete", "deployment/report", "dlock/report", "--timeout=120s"])
        .unwrap();
    drop(mended);
}

#[test]
fn an_operator_that_is_led_to_another_root_admits_no_second_holder_and_shows_the_first_one() {
    let Some(space) = Space::alone("root") else {
        return;
    };
    let installation = space.installation;
    let mended = Mend(|| installation.install(&json!({})));
    let pair = space.pair(&calm(), &[]);
    installation
        .install(&json!({ "zookeeper": { "root": "/other" } }))
        .unwrap();
    let standbys = [
        "get",
        "pods",
        "--selector=app=worker,lockkeeper.io/role=standby",
        "--output=jsonpath={.items[*].metadata.name}",
    ];
    let standby = space.kubectl(&standbys).unwrap();
    space
        .kubectl(&["delete", "pod", &standby, "--timeout=120s"])
        .unwrap();
    // Its successor is not admitted, or waits; it must not run.
    space.wait_until_refused("admits no pod now");
    let reason = "{.status.conditions[?(@.type=='Ready')].reason}";
    space.wait_for_lock("report", reason, |reason| reason == "EnsembleChanged");
    assert_eq!(space.holders("report"), std::slice::from_ref(&pair.holder));
    space.assert_undisturbed(&pair);
    space.assert_exclusive();
    // After the operator is moved back, everything is as before.
    drop(mended);
    // The status named the former standby all the time; a pod gets a role only when the operator has seen it
    // in the queue.
    space.wait_for(&standbys, |standby| !standby.trim().is_empty());
    space.wait_until_waiting("report", 1);
    assert_eq!(space.holders("report"), std::slice::from_ref(&pair.holder));
    space.release(&pair.holder);
    space.assert_other_runs(&pair);
}

/// The charts of the commit before this one; in a checkout without history these charts, under an older version.
fn unpack_older(folder: &Path) {
    let script = r#"git archive HEAD^ charts | tar --extract --directory "$0" ||
        (cp -r charts "$0" && sed -i 's/^version: .*/version: 0.0.1/' "$0"/charts/*/Chart.yaml)"#;
    let status = Command::new("bash")
        .args(["-o", "pipefail", "-ec", script])
        .arg(folder)
        .current_dir(WORKSPACE)
        .status();
    assert!(status.unwrap().success(), "there are no charts");
}
