//! The promises to users of `kubectl` about a DistributedLock, on a real API server. The tests write the
//! status themselves, so no operator may run beside them.

#[path = "../../crds/tests/support/specs.rs"]
#[expect(
    dead_code,
    reason = "how the code words it is for the tests of the crate itself"
)]
mod specs;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use lockkeeper_crds::manifest;
use lockkeeper_product::binaries;
use lockkeeper_testbed::cluster::Namespace;
use lockkeeper_testbed::{Cluster, Process};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(60);

/// A Kubernetes namespace of one test, in a cluster that knows the resource.
fn namespace(name: &str) -> Option<Namespace> {
    let cluster = Cluster::shared()?;
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        server_side(cluster, &manifest::plain());
        let established = [
            "wait",
            "--for=condition=Established",
            "crd/distributedlocks.lockkeeper.io",
        ];
        cluster.kubectl(&established).unwrap();
        // The API server serves a new resource a little after it is established.
        let known = ["get", "distributedlocks", "--all-namespaces"];
        cluster.wait_for(BOUND, &known, |_| true).unwrap();
    });
    Some(Namespace::new(cluster, name).unwrap())
}

/// A manifest.
fn lock(namespace: &Namespace, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "lockkeeper.io/v1alpha1",
        "kind": "DistributedLock",
        "metadata": { "name": name, "namespace": namespace.name() },
        "spec": spec,
    })
}

/// `kubectl apply --server-side`.
fn apply(namespace: &Namespace, name: &str, spec: &Value) -> anyhow::Result<String> {
    let file = written(&lock(namespace, name, spec).to_string());
    let path = file.path().to_str().unwrap();
    namespace.kubectl(&["apply", "--server-side", "--filename", path])
}

/// Writes the status as the operator would.
fn set_status(namespace: &Namespace, name: &str, status: &Value) {
    let patch = json!({ "status": status }).to_string();
    let arguments = [
        "patch",
        "dlock",
        name,
        "--subresource=status",
        "--type=merge",
        "--patch",
        &patch,
    ];
    namespace.kubectl(&arguments).unwrap();
}

fn written(text: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), text).unwrap();
    file
}

fn server_side(cluster: &Cluster, manifest: &str) {
    let file = written(manifest);
    let path = file.path().to_str().unwrap();
    cluster
        .kubectl(&["apply", "--server-side", "--force-conflicts", "--filename", path])
        .unwrap();
}

/// The status that the operator writes for a lock that `report-2` holds.
fn held() -> Value {
    json!({
        "holders": [{
            "pod": "report-2", "node": "n1", "contender": "_c_x-lock-0000000007",
            "fencingToken": 4_294_967_331_i64, "since": "2026-01-02T03:04:05Z",
        }],
        "waiting": 2,
        "queue": [{ "pod": "report-3", "contender": "_c_y-lock-0000000008" }],
        "observedGeneration": 1,
        "conditions": [condition("Ready", "Provisioned")],
    })
}

fn condition(kind: &str, reason: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    })
}

#[test]
fn the_api_server_refuses_what_the_table_refuses_and_says_why() {
    let Some(namespace) = namespace("lockkeeper-api-table") else {
        return;
    };
    for case in specs::cases() {
        let file = written(&lock(&namespace, "case", &case.spec).to_string());
        let path = file.path().to_str().unwrap();
        let verdict = namespace.kubectl(&["create", "--dry-run=server", "--filename", path]);
        match case.refused.or(case.schema) {
            None => assert!(verdict.is_ok(), "{}: {verdict:?}", case.spec),
            Some(sentence) => {
                let said = format!("{:#}", verdict.expect_err(&case.spec.to_string()));
                assert!(said.contains(&sentence), "it says of {}: {said}", case.spec);
            }
        }
    }
}

#[test]
fn the_api_server_and_the_code_agree_on_any_settings() {
    let Some(namespace) = namespace("lockkeeper-api-random") else {
        return;
    };
    let seed = specs::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let specs: Vec<_> = (0..200).map(|_| specs::random_spec(&mut random)).collect();
    let mut manifests = String::new();
    for (i, spec) in specs.iter().enumerate() {
        writeln!(manifests, "---\n{}", lock(&namespace, &format!("lock-{i}"), spec)).unwrap();
    }
    let file = written(&manifests);
    let path = file.path().to_str().unwrap();
    let said = match namespace.kubectl(&["create", "--dry-run=server", "--filename", path]) {
        Ok(said) => said,
        Err(said) => format!("{said:#}"),
    };
    let mut refused = 0;
    for (i, spec) in specs.iter().enumerate() {
        let by_server = said.contains(&format!("\"lock-{i}\" is invalid"));
        let by_code = specs::check_in_code(spec);
        assert_eq!(
            by_server,
            by_code.is_err(),
            "round {i} of LOCKKEEPER_SEED={seed}: {spec}: {by_code:?}\n{said}"
        );
        refused += u32::from(by_server);
    }
    println!("seed {seed}: {refused} of {} refused", specs.len());
    assert!((20..180).contains(&refused), "one-sided: {refused}");
}

#[test]
fn kubectl_shows_holder_token_and_queue_and_waits_for_them() {
    let Some(namespace) = namespace("lockkeeper-api-columns") else {
        return;
    };
    apply(&namespace, "report", &json!({})).unwrap();
    set_status(&namespace, "report", &held());

    let table = namespace.kubectl(&["get", "dlock"]).unwrap();
    let rows: Vec<Vec<_>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        [
            "NAME", "MODE", "HOLDER", "TOKEN", "WAITING", "SINCE", "READY", "AGE"
        ],
        "{table}"
    );
    assert_eq!(
        rows[1][..5],
        ["report", "Exclusive", "report-2", "4294967331", "2"],
        "{table}"
    );
    assert_eq!(rows[1][6], "True", "{table}");
    let wide = namespace
        .kubectl(&["get", "lockkeeper", "--output", "wide"])
        .unwrap();
    for word in [
        "NODE",
        "n1",
        "MAX-HOLDERS",
        "SESSION-TIMEOUT",
        "15s",
        "REASON",
        "Provisioned",
    ] {
        assert!(wide.contains(word), "{word}: {wide}");
    }

    let wait = ["wait", "--for=condition=Held", "dlock/report"];
    let error = namespace
        .kubectl(&[&wait[..], &["--timeout=1s"]].concat())
        .unwrap_err();
    assert!(format!("{error:#}").contains("timed out"), "{error:#}");
    let conditions = json!([condition("Ready", "Provisioned"), condition("Held", "HeldByPods")]);
    set_status(&namespace, "report", &json!({ "conditions": conditions }));
    namespace
        .kubectl(&[&wait[..], &["--timeout=60s"]].concat())
        .unwrap();
}

#[test]
fn the_plugin_lists_by_label_in_all_formats_and_shows_a_lock_again_when_it_changes() {
    let Some(namespace) = namespace("plugin") else {
        return;
    };
    apply(&namespace, "report", &json!({})).unwrap();
    apply(&namespace, "other", &json!({})).unwrap();
    namespace
        .kubectl(&["label", "dlock/report", "team=shop"])
        .unwrap();
    let command = |words: &[&str]| {
        let mut command = Command::new(binaries::plugin().unwrap());
        let kubeconfig = Cluster::shared().unwrap().kubeconfig();
        command
            .args(words)
            .args(["--namespace", namespace.name()])
            .env("KUBECONFIG", kubeconfig);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    };
    let said = |words: &[&str]| {
        let output = command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let names = said(&["list", "-o", "name"]);
    assert_eq!(
        names,
        "distributedlock.lockkeeper.io/other\ndistributedlock.lockkeeper.io/report\n"
    );
    let labelled = said(&["list", "-l", "team=shop", "-o", "wide"]);
    assert_eq!(labelled.lines().count(), 2, "{labelled}");
    assert!(
        labelled
            .lines()
            .next()
            .unwrap()
            .ends_with("LEASE   GUARD   REVISION"),
        "{labelled}"
    );
    let yaml = said(&["list", "-l", "team=shop", "-o", "yaml"]);
    assert!(
        yaml.contains("name: report") && !yaml.contains("name: other"),
        "{yaml}"
    );
    let mut watch = Process::spawn("plugin-watch", command(&["list", "-l", "team=shop", "-w"])).unwrap();
    let mut lines = BufReader::new(watch.child_mut().stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert!(line().starts_with("NAME "));
    assert!(line().starts_with("report   -"));
    set_status(&namespace, "report", &held());
    let shown = line();
    assert!(
        shown.starts_with("report   ") && !shown.starts_with("report   -"),
        "{shown}"
    );
    watch.kill();
}

#[test]
fn kubectl_completes_the_commands_of_the_plugin_and_the_names_of_locks() {
    let Some(namespace) = namespace("plugin-complete") else {
        return;
    };
    apply(&namespace, "report", &json!({})).unwrap();
    apply(&namespace, "other", &json!({})).unwrap();
    let cluster = Cluster::shared().unwrap();
    let programs = tempfile::tempdir().unwrap();
    for name in ["kubectl-lockkeeper", "kubectl_complete-lockkeeper"] {
        symlink(binaries::plugin().unwrap(), programs.path().join(name)).unwrap();
    }
    let path = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    // What a shell does when a user presses the key.
    let completed = |words: &[&str]| {
        let output = Command::new(cluster.program("kubectl").unwrap())
            .args(["__complete", "lockkeeper"])
            .args(words)
            .env("KUBECONFIG", cluster.kubeconfig())
            .env("PATH", &path)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let words = said.lines().filter(|line| !line.starts_with(':'));
        let words = words.map(|line| line.split('\t').next().unwrap().to_owned());
        words.collect::<Vec<_>>()
    };
    assert_eq!(completed(&["hi"]), ["history"]);
    assert_eq!(
        completed(&["-n", namespace.name(), "status", ""]),
        ["other", "report"]
    );
    assert_eq!(completed(&["-n", namespace.name(), "status", "re"]), ["report"]);
    assert!(completed(&["list", "-o", ""]).contains(&"wide".to_owned()));
}

#[test]
fn kubectl_explains_the_resource() {
    let Some(namespace) = namespace("lockkeeper-api-explain") else {
        return;
    };
    for (path, says) in [
        ("dlock", "lets at most one pod"),
        ("dlock.spec.stopGrace", "Default: `3s`"),
        ("dlock.spec.zookeeper.tickTime", "Default: `2s`"),
        ("dlock.status.holders.fencingToken", "it only grows"),
    ] {
        // The API server describes a new resource a little after it serves it.
        let explain = ["explain", path];
        let text = namespace.wait_for(BOUND, &explain, |_| true).unwrap();
        // kubectl breaks long lines.
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(says), "{path}: {text}");
    }
}

#[test]
fn what_all_pods_must_agree_on_cannot_change_while_the_lock_is_in_use_and_can_afterwards() {
    let Some(namespace) = namespace("lockkeeper-api-change") else {
        return;
    };
    let ensemble = |connect: &str| json!({ "maxHolders": 2, "zookeeper": { "connect": connect } });
    let first = ensemble("zk-0:2181,zk-1:2181/team");
    let change = |spec: &Value| apply(&namespace, "report", spec);
    change(&first).unwrap();
    set_status(&namespace, "report", &held());

    let mut read_write = ensemble("zk-0:2181,zk-1:2181/team");
    read_write["maxHolders"] = json!(1);
    read_write["mode"] = json!("ReadWrite");
    let said = format!("{:#}", change(&read_write).unwrap_err());
    let in_use = "while the lock is in use (1 hold it, 2 wait)";
    let said_of_mode =
        format!("spec.mode: Forbidden: spec.mode cannot change from Exclusive to ReadWrite {in_use}");
    assert!(said.contains(&said_of_mode), "{said}");
    assert!(
        said.contains("spec.maxHolders cannot shrink from 2 to 1"),
        "{said}"
    );
    for other in ["zk-2:2181/team", "zk-0:2181"] {
        let said = format!("{:#}", change(&ensemble(other)).unwrap_err());
        assert!(
            said.contains("spec.zookeeper cannot move to another ensemble"),
            "{other}: {said}"
        );
    }
    change(&ensemble("zk-1:2181,zk-2:2181/team")).unwrap();

    set_status(
        &namespace,
        "report",
        &json!({ "holders": null, "queue": null, "waiting": 0 }),
    );
    change(&read_write).unwrap();
}
