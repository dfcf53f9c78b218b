//! What the sidecar gets, and what it answers in the application's place.

use std::time::Duration;

use lockkeeper_operator::admission::inject::Replicas;
use serde_json::{Value, json};

use crate::cluster::{Cluster, NEW, TOKEN, env, sidecar, simple};

#[test]
fn a_pod_is_ready_while_it_holds_if_it_is_alone_and_while_it_is_queued_if_it_is_not() {
    let path = |cluster: &Cluster, pod: &Value| {
        sidecar(&cluster.injected(pod).pod)["readinessProbe"]["httpGet"]["path"].clone()
    };
    let mut cluster = Cluster::new(NEW);
    assert_eq!(path(&cluster, &simple()), "/readyz");
    for replicas in [Replicas::Many, Replicas::InOrder, Replicas::Unknown] {
        cluster.replicas = replicas;
        assert_eq!(path(&cluster, &simple()), "/queuedz");
    }
    cluster.replicas = Replicas::Many;
    let mut holder = simple();
    holder["metadata"]["annotations"]["lockkeeper.io/readiness"] = json!("holder");
    assert_eq!(path(&cluster, &holder), "/readyz");
    let warnings = cluster.injected(&holder).warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains("rollouts stop")),
        "{warnings:?}"
    );
}

#[test]
fn the_sidecar_gets_the_settings_of_the_lock() {
    let cluster = Cluster::new(NEW).lock(json!({
        "mode": "ReadWrite", "sessionTimeout": "30s", "stopGrace": "5s", "renewInterval": "2s",
        "leaseDuration": "auto",
        "onLoss": "Pause", "lockDelay": "1m",
        "zookeeper": { "connect": "tcp+tls://zk:2281/team", "tickTime": "1s",
                       "credentialsSecret": { "name": "mine" }, "tlsSecret": { "name": "tls" } },
    }));
    let mut pod = simple();
    pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("read");
    let injected = cluster.injected(&pod).pod;
    for (name, value) in [
        ("CONNECT", "tcp+tls://zk:2281/team"),
        ("LOCK", "/lockkeeper/locks/shop/app"),
        ("CONTROL", "/lockkeeper/control/shop/app"),
        ("TICK_TIME", "1s"),
        ("SESSION_TIMEOUT", "30s"),
        ("STOP_GRACE", "5s"),
        ("RENEW_INTERVAL", "2s"),
        ("LEASE_DURATION", "auto"),
        ("ON_LOSS", "pause"),
        ("LOCK_DELAY", "1m"),
        ("ACCESS", "read"),
        ("TLS_CA", "/run/secrets/lockkeeper/ca.crt"),
    ] {
        assert_eq!(
            env(sidecar(&injected), &format!("LOCKKEEPER_{name}")),
            value,
            "{name}"
        );
    }
    let volumes = injected["spec"]["volumes"].as_array().unwrap();
    let auth = volumes
        .iter()
        .find(|volume| volume["name"] == "lockkeeper-auth")
        .unwrap();
    let names: Vec<_> = auth["projected"]["sources"]
        .as_array()
        .unwrap()
        .iter()
        .map(|source| source["secret"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["mine", "tls"]);
    let reader = env(sidecar(&injected), "LOCKKEEPER_READER");
    assert_eq!(
        *reader,
        Value::Null,
        "the operator has no identity in an ensemble that is not its own"
    );
}

#[test]
fn in_the_operators_own_ensemble_over_tls_pods_find_what_they_need_in_the_secret_of_the_namespace() {
    let mut cluster = Cluster::new(NEW);
    let connect = "tcp+tls://zk-0:2281";
    cluster.sidecar.connect = Some(connect.to_owned());
    cluster.sidecar.own_connect = connect.to_owned();
    for has_certificate in [false, true] {
        cluster.sidecar.has_certificate = has_certificate;
        let injected = cluster.injected(&simple()).pod;
        let variable = |name: &str| env(sidecar(&injected), &format!("LOCKKEEPER_{name}"));
        assert_eq!(variable("TLS_CA"), "/run/secrets/lockkeeper/ca.crt");
        let own = json!(has_certificate.then_some("/run/secrets/lockkeeper/tls.crt"));
        assert_eq!(*variable("TLS_CERT"), own);
        assert_eq!(variable("READER"), "digest:operator:HASH=");
        let volumes = injected["spec"]["volumes"].as_array().unwrap();
        let auth = volumes
            .iter()
            .find(|volume| volume["name"] == "lockkeeper-auth")
            .unwrap();
        let sources = &auth["projected"]["sources"];
        assert_eq!(
            *sources,
            json!([{ "secret": { "name": "lockkeeper-zookeeper" } }]),
            "all of it"
        );
    }
}

#[test]
fn an_ensemble_that_is_named_without_a_tick_has_zookeepers_default_and_not_the_operators() {
    let mut cluster = Cluster::new(NEW).lock(json!({ "zookeeper": { "connect": "other:2181" } }));
    cluster.sidecar.tick_time = Duration::from_millis(500);
    let injected = cluster.injected(&simple()).pod;
    assert_eq!(env(sidecar(&injected), "LOCKKEEPER_TICK_TIME"), "2s");
    // Its own by its name: other servers' order is another name.
    let cluster = cluster.lock(json!({ "zookeeper": { "connect": "zk-0:2181,zk-1:2181" } }));
    let injected = cluster.injected(&simple()).pod;
    assert_eq!(
        env(sidecar(&injected), "LOCKKEEPER_READER"),
        "digest:operator:HASH="
    );
}

#[test]
fn a_pod_whose_lock_is_not_there_yet_has_the_times_that_the_operator_will_make_it_with() {
    let mut cluster = Cluster::new(NEW);
    for (tick, timeout) in [
        (500, "15s"),
        (2_000, "15s"),
        (3_200, "16s"),
        (4_000, "20s"),
        (6_000, "30s"),
    ] {
        cluster.sidecar.tick_time = Duration::from_millis(tick);
        let injected = cluster.injected(&simple()).pod;
        assert_eq!(
            env(sidecar(&injected), "LOCKKEEPER_SESSION_TIMEOUT"),
            timeout,
            "{tick} ms"
        );
    }
}

#[test]
fn a_startup_probe_is_not_used_up_in_standby_even_if_it_is_the_only_probe() {
    let mut pod = simple();
    pod["spec"]["containers"][0]["startupProbe"] =
        json!({ "exec": { "command": ["/up"] }, "periodSeconds": 3 });
    let injected = Cluster::new(NEW).injected(&pod).pod;
    let app = &injected["spec"]["containers"][0];
    assert_eq!(app["startupProbe"], Value::Null);
    let command = json!([
        "/lockkeeper/lockkeeper",
        "probe",
        "--kind",
        "startup",
        "--",
        "/up"
    ]);
    assert_eq!(app["livenessProbe"]["exec"]["command"], command);
    let probes: Value =
        serde_json::from_str(env(sidecar(&injected), "LOCKKEEPER_APP_PROBES").as_str().unwrap()).unwrap();
    assert_eq!(
        probes,
        json!({ "startup": { "exec": { "command": ["/up"] }, "periodSeconds": 3 } })
    );
}

#[test]
fn a_startup_command_is_executed_in_its_container_whatever_the_liveness_probe_asks() {
    let words =
        |words: &[&str]| json!([&["/lockkeeper/lockkeeper", "probe", "--kind", "liveness"], words].concat());
    for (liveness, command, timeout, known) in [
        (
            json!({ "httpGet": { "port": 80 }, "periodSeconds": 2 }),
            words(&[]),
            8,
            json!({ "httpGet": { "port": 80 }, "periodSeconds": 2 }),
        ),
        (
            json!({ "tcpSocket": { "port": 80 }, "timeoutSeconds": 20 }),
            words(&[]),
            21,
            json!({ "tcpSocket": { "port": 80 }, "timeoutSeconds": 20 }),
        ),
        (
            json!({ "exec": { "command": ["/ok"] } }),
            words(&["--", "/ok"]),
            8,
            Value::Null,
        ),
    ] {
        let mut pod = simple();
        let app = &mut pod["spec"]["containers"][0];
        app["startupProbe"] = json!({ "exec": { "command": ["/up"] }, "timeoutSeconds": 7 });
        app["livenessProbe"] = liveness.clone();
        let injected = Cluster::new(NEW).injected(&pod).pod;
        let app = &injected["spec"]["containers"][0];
        let mut probe = app["livenessProbe"].clone();
        assert_eq!(probe["exec"]["command"].take(), command);
        assert_eq!(probe["timeoutSeconds"], timeout, "the longer one of both");
        assert_eq!(probe["periodSeconds"], liveness["periodSeconds"]);
        assert_eq!(probe["httpGet"], Value::Null);
        let probes = env(sidecar(&injected), "LOCKKEEPER_APP_PROBES");
        let probes: Value = serde_json::from_str(probes.as_str().unwrap()).unwrap();
        assert_eq!(probes["liveness"], known);
        assert_eq!(probes["startup"]["exec"]["command"], json!(["/up"]));
    }
}

#[test]
fn what_the_kubelet_asks_of_the_sidecar_is_at_a_path_with_the_token_of_the_pod_and_nowhere_else() {
    let get = json!({ "httpGet": { "port": 80 } });
    let command = json!({ "exec": { "command": ["/x"] } });
    // Fields of the container, and whether the sidecar is asked over the network.
    for (fields, is_asked) in [
        (json!({ "livenessProbe": get }), true),
        (json!({ "readinessProbe": { "grpc": { "port": 80 } } }), true),
        (json!({ "startupProbe": { "tcpSocket": { "port": 80 } } }), true),
        (json!({ "lifecycle": { "postStart": get, "preStop": get } }), true),
        (
            json!({ "livenessProbe": command, "lifecycle": { "preStop": command } }),
            false,
        ),
        (json!({}), false),
    ] {
        let mut pod = simple();
        let app = pod["spec"]["containers"][0].as_object_mut().unwrap();
        app.extend(fields.as_object().unwrap().clone());
        let injected = Cluster::new(NEW).injected(&pod).pod;
        let app = &injected["spec"]["containers"][0];
        let places = [
            "/livenessProbe",
            "/readinessProbe",
            "/lifecycle/postStart",
            "/lifecycle/preStop",
        ];
        let paths: Vec<_> = places
            .iter()
            .filter_map(|place| app.pointer(place)?.get("httpGet"))
            .inspect(|get| assert_eq!(get["port"], 9808, "{fields}"))
            .map(|get| get["path"].as_str().unwrap())
            .collect();
        assert_eq!(!paths.is_empty(), is_asked, "{fields}");
        let below = format!("/app/{TOKEN}/");
        assert!(paths.iter().all(|path| path.starts_with(&below)), "{paths:?}");
        let token = env(sidecar(&injected), "LOCKKEEPER_APP_TOKEN");
        assert_eq!(*token, json!(is_asked.then_some(TOKEN)), "{fields}");
        // Metadata are shown by more than the pod's own readers: in lists, selectors and metrics.
        assert!(!injected["metadata"].to_string().contains(TOKEN), "{fields}");
    }
}
