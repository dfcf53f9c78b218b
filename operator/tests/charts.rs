//! What the charts print, ask for and refuse before they touch a cluster, by the real helm.

use lockkeeper_e2e::cluster::build::Programs;
use serde_json::Value;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/lockkeeper");
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
