//! The output and the refusals of the charts without a cluster, by the real helm.

use std::path::Path;
use std::process::Command;

use lockkeeper_product::chart::{CHART, GIVEN, Helm, WORKSPACE};
use serde_json::Value;

const README: &str = include_str!("../../../README.md");

/// `None` where helm has not been built.
fn helm() -> Option<Helm> {
    match Helm::alone() {
        Ok(helm) => Some(helm),
        Err(reason) => {
            lockkeeper_skip::skip(reason);
            None
        }
    }
}

/// Whether helm succeeded, and its whole output.
fn run(helm: &Helm, arguments: &[&str]) -> (bool, String) {
    let said = helm.run(arguments).unwrap();
    (said.is_done, said.output + &said.words)
}

fn template(helm: &Helm, part: &str, values: &[&str]) -> Vec<Value> {
    let text = helm.render(&[part], values);
    let documents = text.split("\n---\n").filter(|one| one.contains("kind:"));
    documents
        .map(|one| serde_saphyr::from_str(one).unwrap())
        .collect()
}

/// The value of a variable of the operator.
fn of_operator(helm: &Helm, variable: &str, values: &[&str]) -> Option<Value> {
    let [operator] = &template(helm, "deployment", values)[..] else {
        panic!("one deployment")
    };
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    let mut variables = container["env"].as_array().unwrap().iter();
    let named = variables.find(|one| one["name"] == *variable);
    named.map(|one| one["value"].clone())
}

#[test]
fn without_a_cluster_to_look_at_the_chart_draws_no_identity_for_the_operator_and_says_what_to_do() {
    let Some(helm) = helm() else { return };
    let connect = "--set=zookeeper.connect=zookeeper:2181";
    for verb in [
        &["template", "lockkeeper"][..],
        &["install", "lockkeeper", "--dry-run=client"],
    ] {
        let (is_done, words) = run(&helm, &[verb, &[CHART, connect]].concat());
        assert!(!is_done, "{words}");
        for part in ["zookeeper.authSecret", "digest:USER:PASSWORD", "--dry-run=server"] {
            assert!(words.contains(part), "{words}");
        }
    }
    let secrets = template(&helm, "serviceaccount", &[]);
    assert!(secrets.iter().all(|one| one["kind"] != "Secret"), "{secrets:?}");
}

#[test]
fn the_next_steps_that_helm_prints_wait_for_the_pods_before_the_lock_changes() {
    let Some(helm) = helm() else { return };
    let (is_done, words) = run(
        &helm,
        &["install", "lockkeeper", CHART, GIVEN, "--dry-run=client"],
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
    let Some(helm) = helm() else { return };
    let text = README.replace("\\\n", " ");
    let commands: Vec<_> = text.lines().filter(|line| line.starts_with("helm ")).collect();
    let [crds, operator] = commands[..] else {
        panic!("{commands:?}")
    };
    // With the value that makes a cluster unnecessary.
    let operator = format!("{operator} --set zookeeper.authSecret=given");
    for command in [crds, &operator] {
        // Run the line in a shell.
        let dry = format!("{command} --dry-run=client").replacen("helm", "\"$0\"", 1);
        let done = Command::new("bash")
            .args(["-c", &dry])
            .arg(helm.program())
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
    let Some(helm) = helm() else { return };
    let quotas = |more: &[&str]| -> Vec<Value> {
        let objects = template(&helm, "availability", more);
        objects
            .into_iter()
            .filter(|one| one["kind"] == "ResourceQuota")
            .collect()
    };
    let [quota] = &quotas(&[])[..] else {
        panic!("one quota")
    };
    let scope = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
    let [operator] = &template(&helm, "deployment", &[])[..] else {
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
        assert!(quotas(&[other]).is_empty(), "{other}");
    }
}

#[test]
fn nodes_can_be_read_and_their_taint_is_trusted_only_if_the_administrator_says_so() {
    let Some(helm) = helm() else { return };
    let of_operator = |values: &[&str]| of_operator(&helm, "LOCKKEEPER_TRUST_OUT_OF_SERVICE_TAINT", values);
    let may_read = |values: &[&str]| {
        let roles = template(&helm, "rbac", values);
        let rules = roles.iter().filter_map(|role| role["rules"].as_array()).flatten();
        rules.into_iter().any(|rule| rule["resources"][0] == "nodes")
    };
    assert_eq!((of_operator(&[]), may_read(&[])), (None, false));
    let trusted = &["trustOutOfServiceTaint=true"];
    assert_eq!(
        (of_operator(trusted), may_read(trusted)),
        (Some("true".into()), true)
    );
    let (is_done, words) = run(
        &helm,
        &[
            "template",
            "lockkeeper",
            CHART,
            GIVEN,
            "--set=trustOutOfServiceTaint=sometimes",
        ],
    );
    assert!(!is_done && words.contains("trustOutOfServiceTaint"), "{words}");
}

#[test]
fn a_tick_that_no_lock_could_state_is_refused_before_anything_is_installed() {
    let Some(helm) = helm() else { return };
    for tick in ["99ms", "0s", "61s", "2m"] {
        let tick = format!("--set=zookeeper.tickTime={tick}");
        let (is_done, words) = run(&helm, &["template", "lockkeeper", CHART, GIVEN, &tick]);
        assert!(
            !is_done && words.contains("must be between 100ms and 1m"),
            "{tick}: {words}"
        );
    }
    for tick in ["100ms", "2500ms", "8s", "1m"] {
        let value = format!("zookeeper.tickTime={tick}");
        assert_eq!(
            of_operator(&helm, "LOCKKEEPER_TICK_TIME", &[&value]),
            Some(tick.into())
        );
    }
}

#[test]
fn a_value_that_protects_nothing_by_itself_is_refused_with_the_one_that_is_missing() {
    let Some(helm) = helm() else { return };
    let connect = "--set=zookeeper.connect=zk:2181";
    let with_tls = "--set=zookeeper.connect=tcp+tls://zk:2281";
    for (connect, value, missing) in [
        (with_tls, "zookeeper.root=/other", "set zookeeper.tlsSecret"),
        (
            connect,
            "zookeeper.tlsSecret=tls",
            "name servers as tcp+tls://HOST:PORT",
        ),
        (
            connect,
            "zookeeper.podTlsSecret=tls",
            "set zookeeper.tlsSecret too",
        ),
        (
            connect,
            "zookeeper.tlsClientCertificate=true",
            "set zookeeper.tlsSecret",
        ),
        (
            connect,
            "webhook.clients.names={apiserver}",
            "set webhook.clients.ca",
        ),
        (connect, "webhook.clients.ca=PEM", "set webhook.clients.names"),
        (
            connect,
            "zookeeper.podConnect=tcp+tls://zk:2281",
            "set zookeeper.tlsSecret",
        ),
    ] {
        let value = format!("--set={value}");
        let (is_done, words) = run(&helm, &["template", "lockkeeper", CHART, GIVEN, connect, &value]);
        assert!(!is_done && words.contains(missing), "{value}: {words}");
    }
    let whole =
        "--set=zookeeper.tlsSecret=tls,zookeeper.podTlsSecret=pods,zookeeper.tlsClientCertificate=true";
    let pods = "--set=zookeeper.tlsSecret=tls,zookeeper.podConnect=tcp+tls://zk:2281";
    for (connect, values) in [(with_tls, whole), (connect, pods)] {
        let (is_done, words) = run(&helm, &["template", "lockkeeper", CHART, GIVEN, connect, values]);
        assert!(is_done, "{words}");
    }
}

#[test]
fn a_registry_that_may_take_longer_than_the_api_server_waits_is_refused_before_anything_is_installed() {
    let Some(helm) = helm() else { return };
    let template = |timeout: &str, seconds: u32| {
        let timeout = format!("--set=registry.timeout={timeout},webhook.timeoutSeconds={seconds}");
        run(&helm, &["template", "lockkeeper", CHART, GIVEN, &timeout])
    };
    for (timeout, seconds) in [("3001ms", 6), ("1m", 30), ("2s", 4), ("0s", 7)] {
        let (is_done, words) = template(timeout, seconds);
        assert!(
            !is_done && words.contains("between 100ms and 3s less"),
            "{timeout}: {words}"
        );
    }
    for (timeout, seconds) in [("3s", 6), ("27s", 30), ("1s", 4)] {
        let (is_done, words) = template(timeout, seconds);
        assert!(is_done, "{timeout}: {words}");
    }
}

#[test]
fn with_the_charts_own_server_pods_count_with_two_seconds_at_least_and_it_grants_what_locks_ask_for() {
    let Some(helm) = helm() else { return };
    for (tick, counted, granted) in [
        ("100ms", "2s", Some("maxSessionTimeout=40000")),
        ("1s", "2s", Some("maxSessionTimeout=40000")),
        // So the default is not changed by an upgrade, which would restart the servers.
        ("2000ms", "2000ms", None),
        ("3s", "3s", None),
    ] {
        let tick = format!("zookeeper.tickTime={tick}");
        let values = ["zookeeper.server.enabled=true", &tick];
        let stated = of_operator(&helm, "LOCKKEEPER_TICK_TIME", &values);
        assert_eq!(stated, Some(counted.into()), "{tick}");
        let objects = template(&helm, "zookeeper", &values);
        let set = objects.iter().find(|one| one["kind"] == "StatefulSet").unwrap();
        let server = &set["spec"]["template"]["spec"]["containers"][0];
        let mut variables = server["env"].as_array().unwrap().iter();
        let extra = variables.find(|one| one["name"] == "ZOO_CFG_EXTRA");
        assert_eq!(extra.and_then(|one| one["value"].as_str()), granted, "{tick}");
    }
}

#[test]
fn a_lock_that_is_held_twice_is_critical_and_a_pod_that_has_just_got_it_does_not_count() {
    let Some(helm) = helm() else { return };
    let objects = template(&helm, "monitoring", &["metrics.rules.enabled=true"]);
    let alerts = |objects: &[Value]| -> Vec<Value> {
        let groups = objects[0]["spec"]["groups"].as_array().unwrap().iter();
        groups
            .flat_map(|group| group["rules"].as_array().unwrap().clone())
            .collect()
    };
    let all = alerts(&objects);
    let alert = all.iter().find(|one| one["alert"] == "LockHeldTwice").unwrap();
    assert_eq!(alert["labels"]["severity"], "critical");
    let settings = [
        "metrics.rules.enabled=true",
        "metrics.rules.without={LockDeserted,NoLeader}",
    ];
    let some = alerts(&template(&helm, "monitoring", &settings));
    let is_left_out = |one: &&Value| !some.contains(one);
    let left_out: Vec<_> = all.iter().filter(is_left_out).map(|one| &one["alert"]).collect();
    assert_eq!(left_out, ["LockDeserted", "NoLeader"]);
    let expression = alert["expr"].as_str().unwrap();
    assert!(
        expression.contains("unless changes(lockkeeper_acquisitions_total[2m]) > 0"),
        "{expression}"
    );
}
