//! The webhook's certificates by cert-manager.

use std::fs;
use std::process::Command;

use lockkeeper_product::chart::SYSTEM;
use lockkeeper_product::space::{BOUND, Mend, Space};
use lockkeeper_testbed::cluster::build::module;
use lockkeeper_testbed::process::{Process, wait_for};
use serde_json::json;

const SECRET: &str = "lockkeeper-webhook";
const SERVING: &str = "Serving a new certificate";
const OPERATORS: &str = "--selector=app.kubernetes.io/component=operator";

#[test]
fn cert_managers_certificates_are_served_and_no_pod_is_refused_while_they_are_renewed() {
    let Some(space) = Space::alone("certificates") else {
        return;
    };
    let (cluster, installation) = (space.cluster, space.installation);
    let namespace = format!("--namespace={SYSTEM}");
    let system = |words: &[&str]| cluster.kubectl(&[words, &[&namespace]].concat()).unwrap();
    let source = module("certificates", "github.com/cert-manager/cert-manager").unwrap();
    let crds = source.join("deploy/crds").display().to_string();
    let apply = ["apply", "--server-side", "--force-conflicts", "--filename", &crds];
    let created = cluster.kubectl(&apply).unwrap();
    let names = created.lines().filter_map(|line| line.split_whitespace().next());
    let established = ["wait", "--for=condition=Established", "--timeout=60s"];
    cluster
        .kubectl(&established.into_iter().chain(names).collect::<Vec<_>>())
        .unwrap();
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(cluster.program("cert-manager").unwrap());
    command.arg(cluster.kubeconfig()).stderr(log.reopen().unwrap());
    let _cert_manager = Process::spawn("cert-manager", command).unwrap();

    // Uninstall first, so that only cert-manager's authority is in the webhook configuration.
    let mended = Mend(|| installation.install(&json!({})));
    installation
        .helm(&["uninstall", "lockkeeper", &namespace, "--wait", "--no-hooks"])
        .unwrap();
    installation
        .install(&json!({ "webhook": { "certificates": "certManager" } }))
        .unwrap();
    let trusted = || {
        let bundle = "--output=jsonpath={.webhooks[0].clientConfig.caBundle}";
        system(&["get", "mutatingwebhookconfiguration", "lockkeeper", bundle])
    };
    let part = |name: &str| {
        let path = format!("--output=jsonpath={{.data.{name}}}");
        system(&["get", "secret", SECRET, &path])
    };
    let is_trusted = || (trusted() == part(r"ca\.crt")).then_some(());
    wait_for(BOUND, is_trusted).unwrap_or_else(|| {
        let log = fs::read_to_string(log.path()).unwrap();
        panic!(
            "cert-manager does not say whom to trust: {} instead of {}\n{log}\n{}",
            trusted(),
            part(r"ca\.crt"),
            installation.story()
        )
    });
    let authority = part(r"ca\.crt");
    space.pair(&json!({}), &[]);

    let certificate = part(r"tls\.crt");
    let served = || {
        let logs = system(&["logs", OPERATORS, "--tail=-1"]);
        logs.matches(SERVING).count()
    };
    let before = served();
    // Request a renewal as cert-manager's `cmctl renew` does.
    let renew = json!({ "status": { "conditions": [{
        "type": "Issuing", "status": "True", "reason": "ManuallyTriggered", "message": "by a test",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }] } });
    system(&[
        "patch",
        "certificate",
        SECRET,
        "--subresource=status",
        "--type=merge",
        &format!("--patch={renew}"),
    ]);
    let mut tries = 0_u32;
    let renewed = || {
        tries += 1;
        // After a change of the pod its kubelet updates its volumes at once.
        let label = format!("example.com/try={tries}");
        system(&["label", "pods", OPERATORS, "--overwrite", &label]);
        assert_admitted(&space);
        (part(r"tls\.crt") != certificate && served() >= before + 2).then_some(())
    };
    wait_for(BOUND, renewed).unwrap_or_else(|| {
        panic!(
            "both replicas serve the new certificate\n{}",
            installation.story()
        )
    });
    assert_eq!(trusted(), authority, "who is trusted stays");
    // The API server has to connect anew.
    cluster.kill("kube-apiserver").unwrap();
    cluster.start_again("kube-apiserver").unwrap();
    assert_admitted(&space);

    // From now on the operator has its own certificate again.
    drop(mended);
    assert_admitted(&space);
}

/// Asserts that a marked pod gets its sidecar.
fn assert_admitted(space: &Space) {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "asked", "annotations": { "lockkeeper.io/lock": "report" } },
        "spec": space.pod(&[space.recording(&[])]),
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), pod.to_string()).unwrap();
    let asked = || {
        let answer = space.kubectl(&[
            "create",
            "--dry-run=server",
            "--output=jsonpath={.spec.initContainers[*].name}",
            "--filename",
            file.path().to_str().unwrap(),
        ]);
        match answer {
            // The API server itself was too slow, as it may be just after its start.
            Err(error)
                if error
                    .to_string()
                    .contains("did not complete within requested timeout") =>
            {
                println!("once more: {error:#}");
                None
            }
            answer => Some(answer),
        }
    };
    let names = wait_for(BOUND, asked).expect("an answer").unwrap();
    // Before Kubernetes 1.35 another one copies the binary.
    let is_guarded = names.split_whitespace().any(|name| name == "lockkeeper");
    assert!(is_guarded, "the init containers are {names:?}");
}
