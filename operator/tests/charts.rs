//! What the charts print, ask for and refuse before they touch a cluster, by the real helm.

use std::path::Path;
use std::process::Command;

use lockkeeper_e2e::cluster::build::Programs;
use serde_json::Value;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/lockkeeper");
const README: &str = include_str!("../../README.md");
/// With these it can be rendered without a cluster.
const VALUES: &str = "--set=zookeeper.connect=zookeeper:2181,zookeeper.authSecret=given";

/// `None` where helm has not been built.
fn helm() -> Option<Programs> {
    match Programs::found() {
        Ok(programs) => Some(programs),
        Err(reason) => {
            println!("SKIPPED: {reason}");
            None
        }
    }
}

/// What helm says, and whether it was content.
fn run(programs: &Programs, arguments: &[&str]) -> (bool, String) {
    let done = programs
        .command("helm")
        .args(arguments)
        // There is no cluster to look at.
        .env("KUBECONFIG", "/dev/null")
        .output()
        .unwrap();
    let words = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8(words).unwrap())
}

fn template(programs: &Programs, part: &str, more: &[&str]) -> Vec<Value> {
    let part = format!("--show-only=templates/{part}.yaml");
    let arguments = [&["template", "lockkeeper", CHART, VALUES, &part], more].concat();
    let (is_done, words) = run(programs, &arguments);
    assert!(is_done, "{words}");
    let documents = words.split("\n---\n").filter(|one| one.contains("kind:"));
    documents
        .map(|one| serde_saphyr::from_str(one).unwrap())
        .collect()
}

#[test]
fn without_a_cluster_to_look_at_the_chart_draws_no_identity_for_the_operator_and_says_what_to_do() {
    let Some(programs) = helm() else { return };
    let connect = "--set=zookeeper.connect=zookeeper:2181";
    for verb in [
        &["template", "lockkeeper"][..],
        &["install", "lockkeeper", "--dry-run=client"],
    ] {
        let (is_done, words) = run(&programs, &[verb, &[CHART, connect]].concat());
        assert!(!is_done, "{words}");
        for part in ["zookeeper.authSecret", "digest:USER:PASSWORD", "--dry-run=server"] {
            assert!(words.contains(part), "{words}");
        }
    }
    let secrets = template(&programs, "serviceaccount", &[]);
    assert!(secrets.iter().all(|one| one["kind"] != "Secret"), "{secrets:?}");
}

#[test]
fn the_next_steps_that_helm_prints_wait_for_the_pods_before_the_lock_changes() {
    let Some(programs) = helm() else { return };
    let (is_done, words) = run(
        &programs,
        &["install", "lockkeeper", CHART, VALUES, "--dry-run=client"],
    );
    assert!(is_done, "{words}");
    let (_, notes) = words.split_once("NOTES:").unwrap();
    let steps: Vec<_> = notes
        .lines()
        .filter_map(|line| line.trim().strip_prefix("kubectl "))
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert_eq!(steps, ["scale", "wait", "annotate", "scale", "get"], "{notes}");
}

#[test]
fn the_commands_of_the_readme_install_what_they_say() {
    let Some(programs) = helm() else { return };
    let text = README.replace("\\\n", " ");
    let commands: Vec<_> = text.lines().filter(|line| line.starts_with("helm ")).collect();
    let [crds, operator] = commands[..] else {
        panic!("{commands:?}")
    };
    // With what makes a cluster needless.
    let operator = format!("{operator} --set zookeeper.authSecret=given");
    for command in [crds, &operator] {
        // As a shell reads it.
        let dry = format!("{command} --dry-run=client").replacen("helm", "\"$0\"", 1);
        let done = Command::new("bash")
            .args(["-c", &dry])
            .arg(programs.path("helm"))
            .current_dir(Path::new(WORKSPACE))
            .env("KUBECONFIG", "/dev/null")
            .output()
            .unwrap();
        let words = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        assert!(done.status.success(), "{command}: {words}");
        if command.contains("zookeeper.connect") {
            let (_, connect) = words.split_once("LOCKKEEPER_CONNECT, value: ").unwrap();
            assert_eq!(
                connect.split('"').nth(1).unwrap().split(',').count(),
                3,
                "{connect}"
            );
        }
    }
}

#[test]
fn a_class_of_kubernetes_own_comes_with_the_quota_that_admits_it() {
    let Some(programs) = helm() else { return };
    let quotas = |more: &[&str]| -> Vec<Value> {
        let objects = template(&programs, "availability", more);
        objects
            .into_iter()
            .filter(|one| one["kind"] == "ResourceQuota")
            .collect()
    };
    let [quota] = &quotas(&[])[..] else {
        panic!("one quota")
    };
    let scope = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
    let [operator] = &template(&programs, "deployment", &[])[..] else {
        panic!("one deployment")
    };
    assert_eq!(scope["scopeName"], "PriorityClass");
    assert_eq!(
        scope["values"][0],
        operator["spec"]["template"]["spec"]["priorityClassName"]
    );
    for other in [
        "priorityClassName=mine",
        "priorityClassName=",
        "resourceQuota.enabled=false",
    ] {
        assert!(quotas(&["--set", other]).is_empty(), "{other}");
    }
}
