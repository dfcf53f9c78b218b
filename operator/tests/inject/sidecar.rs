//! What the sidecar gets, and what it answers in the application's place.

use lockkeeper_operator::inject::Replicas;
use serde_json::{Value, json};

use crate::world::{NEW, World, env, sidecar, simple};

#[test]
fn a_pod_is_ready_while_it_holds_if_it_is_alone_and_while_it_is_queued_if_it_is_not() {
    let path = |world: &World, pod: &Value| {
        sidecar(&world.injected(pod).pod)["readinessProbe"]["httpGet"]["path"].clone()
    };
    let mut world = World::new(NEW);
    assert_eq!(path(&world, &simple()), "/readyz");
    for replicas in [Replicas::Many, Replicas::Unknown] {
        world.replicas = replicas;
        assert_eq!(path(&world, &simple()), "/queuedz");
    }
    world.replicas = Replicas::Many;
    let mut holder = simple();
    holder["metadata"]["annotations"]["lockkeeper.io/readiness"] = json!("holder");
    assert_eq!(path(&world, &holder), "/readyz");
    let warnings = world.injected(&holder).warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains("rollouts stop")),
        "{warnings:?}"
    );
}

#[test]
fn the_sidecar_gets_the_settings_of_the_lock() {
    let world = World::new(NEW).lock(json!({
        "mode": "ReadWrite", "sessionTimeout": "30s", "stopGrace": "5s", "renewInterval": "2s",
        "onLoss": "Pause", "lockDelay": "1m",
        "zookeeper": { "connect": "tcp+tls://zk:2281/team", "tickTime": "1s",
                       "credentialsSecret": { "name": "mine" }, "tlsSecret": { "name": "tls" } },
    }));
    let mut pod = simple();
    pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("read");
    let injected = world.injected(&pod).pod;
    for (name, value) in [
        ("CONNECT", "tcp+tls://zk:2281/team"),
        ("LOCK", "/lockkeeper/locks/shop/app"),
        ("CONTROL", "/lockkeeper/control/shop/app"),
        ("TICK_TIME", "1s"),
        ("SESSION_TIMEOUT", "30s"),
        ("STOP_GRACE", "5s"),
        ("RENEW_INTERVAL", "2s"),
        ("ON_LOSS", "pause"),
        ("LOCK_DELAY", "1m"),
        ("ACCESS", "read"),
        ("READER", "digest:operator:HASH="),
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
}

#[test]
fn a_startup_probe_is_not_used_up_in_standby_even_if_it_is_the_only_probe() {
    let mut pod = simple();
    pod["spec"]["containers"][0]["startupProbe"] =
        json!({ "exec": { "command": ["/up"] }, "periodSeconds": 3 });
    let injected = World::new(NEW).injected(&pod).pod;
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
