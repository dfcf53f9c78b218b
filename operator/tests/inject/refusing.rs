//! What cannot be guarded is refused, with a sentence.

use serde_json::{Value, json};

use crate::cluster::{Cluster, NEW, OLD, golden, pod_of, simple};

/// One step to a pod, or value of a key, that is refused.
type Edit = fn(&mut Value);

/// Something in the place of the guard's binary would run without a guard, and of the socket's folder with one of its own.
#[test]
fn nothing_of_a_user_is_mounted_in_the_place_of_the_guard() {
    let paths = [
        ("/lockkeeper", false),
        ("/lockkeeper/lockkeeper", false),
        ("lockkeeper/lockkeeper", false),
        ("//lockkeeper/./lockkeeper", false),
        ("/run/lockkeeper/", false),
        ("/run//lockkeeper/guard.sock", false),
        ("/var/run/lockkeeper", false),
        ("/opt/../lockkeeper/lockkeeper", false),
        ("/run", true),
        ("/var/lockkeeper", true),
        ("/run/lockkeeper-of-mine", true),
        ("/data/lockkeeper/..data", true),
    ];
    for (path, is_free) in paths {
        for (field, key) in [("volumeMounts", "mountPath"), ("volumeDevices", "devicePath")] {
            let add = |pod: &mut Value| {
                let parts = &mut pod["spec"]["containers"][0][field];
                if !parts.is_array() {
                    *parts = json!([]);
                }
                parts
                    .as_array_mut()
                    .unwrap()
                    .push(json!({ "name": "mine", key: path }));
            };
            let mut pod = simple();
            add(&mut pod);
            // A pod is looked at again when it comes with our parts.
            let mut again = Cluster::new(NEW).injected(&simple()).pod;
            add(&mut again);
            for pod in [pod, again] {
                match Cluster::new(NEW).inject(&pod) {
                    Ok(_) => assert!(is_free, "{path}"),
                    Err(refusal) => assert!(
                        !is_free && refusal.to_string().contains(path),
                        "{path}: {refusal}"
                    ),
                }
            }
        }
    }
}

#[test]
fn a_bad_pod_gets_one_clear_sentence() {
    let cases: [(Edit, &str); 19] = [
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("Not_A_Label"),
            "lower-case letters",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!(""),
            "name of a lock",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("a,b"),
            "name one of them",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("x".repeat(64)),
            "1 to 63",
        ),
        (
            |pod| pod["metadata"]["labels"] = json!({ "lockkeeper.io/lock": "other" }),
            "a pod can have one lock",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("no"),
            "write one of app",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("Wrap"),
            "auto, wrap, signal",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/readiness"] = json!("x"),
            "auto, holder, queued",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("rw"),
            "write, read",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/access"] = json!("read"),
            "has mode Exclusive",
        ),
        (
            |pod| pod["metadata"]["annotations"]["lockkeeper.io/contaner"] = json!("app"),
            "the keys are",
        ),
        (|pod| pod["spec"]["os"] = json!({ "name": "windows" }), "Windows"),
        (
            |pod| pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/os": "windows" }),
            "Windows",
        ),
        (|pod| pod["spec"]["hostPID"] = json!(true), "remove spec.hostPID"),
        (
            |pod| pod["spec"]["initContainers"] = json!([{ "name": "lockkeeper", "image": "x" }]),
            "rename it",
        ),
        (
            |pod| pod["spec"]["volumes"] = json!([{ "name": "lockkeeper-run" }]),
            "rename it",
        ),
        (
            |pod| {
                let mounts = json!([{ "name": "lockkeeper-run", "mountPath": "/mine" }]);
                pod["spec"]["containers"]
                    .as_array_mut()
                    .unwrap()
                    .push(json!({ "name": "other", "image": "o:1", "volumeMounts": mounts }));
            },
            "rename it",
        ),
        (
            |pod| pod["spec"]["containers"][0]["ports"] = json!([{ "containerPort": 9808 }]),
            "another port",
        ),
        (
            |pod| pod["spec"]["containers"][0]["livenessProbe"] = json!({ "tcpSocket": { "port": "web" } }),
            "write the number",
        ),
    ];
    for (edit, part) in cases {
        let mut pod = simple();
        edit(&mut pod);
        let refusal = Cluster::new(NEW).refusal(&pod);
        assert!(refusal.contains(part), "{part:?} is not in {refusal:?}");
    }
}

#[test]
fn what_cannot_be_guarded_safely_is_refused_with_the_way_out() {
    let mut shared = simple();
    shared["spec"]["shareProcessNamespace"] = json!(true);
    shared["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("wrap");
    assert!(
        Cluster::new(NEW)
            .refusal(&shared)
            .contains("set lockkeeper.io/guard to `signal`")
    );
    assert!(
        Cluster::new(OLD)
            .refusal(&shared)
            .ends_with("remove shareProcessNamespace")
    );

    let signal = pod_of("signal");
    assert!(
        Cluster::new(OLD)
            .refusal(&signal)
            .contains("set `command` in the pod, so that it can be wrapped")
    );
    let pausing = Cluster::new(NEW).lock(json!({ "onLoss": "Pause" }));
    assert!(
        pausing
            .refusal(&signal)
            .contains("onLoss of the lock to its default")
    );
    let mut non_root = signal.clone();
    non_root["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
    assert!(
        Cluster::new(NEW)
            .refusal(&non_root)
            .contains("set securityContext.runAsUser")
    );
    // The kubelet would take it in the place of the gate, and start the container without the lock.
    let mut gateless = signal.clone();
    gateless["spec"]["containers"][0]["env"] = json!([{ "name": "LOCKKEEPER_FENCING_TOKEN", "value": "1" }]);
    assert!(
        Cluster::new(NEW)
            .refusal(&gateless)
            .contains("the pod has a variable named `LOCKKEEPER_FENCING_TOKEN` that is not Lockkeeper's"),
    );
    let mut unshared = signal;
    unshared["spec"]["shareProcessNamespace"] = json!(false);
    assert!(
        Cluster::new(NEW)
            .refusal(&unshared)
            .contains("shareProcessNamespace is false")
    );

    let mut nowhere = Cluster::new(NEW);
    nowhere.sidecar.connect = None;
    assert!(nowhere.refusal(&simple()).contains("spec.zookeeper.connect"));
    let tight = Cluster::new(NEW).lock(json!({ "sessionTimeout": "6s", "stopGrace": "5s" }));
    assert!(
        tight
            .refusal(&simple())
            .starts_with("DistributedLock `app` is not valid: ")
    );
}

#[test]
fn the_application_behind_a_proxy_that_another_injector_put_first_is_not_left_without_the_lock() {
    let cluster = Cluster::new(NEW);
    let mut pod = simple();
    for proxy in [
        "istio-proxy",
        "linkerd-proxy",
        "kuma-sidecar",
        "consul-dataplane",
        "daprd",
    ] {
        pod["spec"]["containers"] =
            json!([{ "name": proxy, "image": "p" }, simple()["spec"]["containers"][0]]);
        let refusal = cluster.refusal(&pod);
        assert!(
            refusal.contains(&format!("`{proxy}` is the proxy")) && refusal.contains("write one of app into"),
            "{refusal}"
        );
        // The annotation chooses the container.
        for key in [
            "lockkeeper.io/container",
            "kubectl.kubernetes.io/default-container",
        ] {
            let mut pod = pod.clone();
            pod["metadata"]["annotations"][key] = json!("app");
            let injected = cluster.injected(&pod);
            assert_eq!(
                injected.pod["spec"]["containers"][0]["command"],
                Value::Null,
                "{key}"
            );
            assert_eq!(
                injected.pod["metadata"]["annotations"]["lockkeeper.io/container"],
                "app"
            );
            assert_eq!(injected.warnings, [""; 0], "{key}");
        }
    }
    // Also a name that is no application's.
    pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("daprd");
    assert!(cluster.refusal(&pod).contains("`daprd` is the proxy"));
}

#[test]
fn a_sidecar_that_may_wait_for_a_proxy_that_waits_for_it_is_warned_of() {
    let cluster = Cluster::new(NEW).image(&["/legacy"], &[], "daemon");
    let mut pod = pod_of("signal");
    let app = pod["spec"]["containers"][0]["name"].clone();
    pod["metadata"]["annotations"]["lockkeeper.io/container"] = app;
    let warned = |pod: &Value| {
        cluster
            .injected(pod)
            .warnings
            .join("\n")
            .contains("`linkerd-proxy` starts only after")
    };
    assert!(!warned(&pod));
    let proxy = json!({ "name": "linkerd-proxy", "image": "p" });
    pod["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    assert!(warned(&pod));
    let mut excepted = pod.clone();
    excepted["metadata"]["annotations"]["config.linkerd.io/skip-outbound-ports"] = json!("2181");
    assert!(!warned(&excepted));
    // In front of the application the guard waits, and the proxy runs.
    let mut wrapped = simple();
    wrapped["metadata"]["annotations"]["lockkeeper.io/container"] = json!("app");
    let proxy = pod["spec"]["containers"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone();
    wrapped["spec"]["containers"].as_array_mut().unwrap().push(proxy);
    assert!(!warned(&wrapped));
}

#[test]
fn a_guard_that_shares_little_cpu_with_its_application_is_warned_of() {
    let cluster = Cluster::new(NEW);
    let warned = |limit: Value, security: Value| {
        let mut pod = simple();
        pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("app");
        pod["spec"]["containers"][0]["resources"] = json!({ "limits": limit });
        pod["spec"]["containers"][0]["securityContext"] = security;
        let warnings = cluster.injected(&pod).warnings.join("\n");
        warnings.contains("shares its CPU limit of 100m with its guard")
    };
    let little = json!({ "cpu": "100m" });
    let nice = |user: i64| json!({ "runAsUser": user, "capabilities": { "add": ["SYS_NICE"] } });
    assert!(warned(little.clone(), json!({})));
    // Capabilities are effective for root only.
    assert!(warned(little.clone(), nice(1000)));
    assert!(!warned(little.clone(), nice(0)));
    assert!(!warned(little, json!({ "runAsUser": 0, "privileged": true })));
    assert!(!warned(json!({ "cpu": 1 }), json!({})));
    assert!(!warned(json!({ "memory": "64Mi" }), json!({})));
}

#[test]
fn a_container_that_was_taken_for_its_place_is_told() {
    let cluster = Cluster::new(NEW);
    let mut pod = simple();
    assert_eq!(cluster.injected(&pod).warnings, [""; 0]);
    let shipper = json!({ "name": "shipper", "image": "s" });
    pod["spec"]["containers"].as_array_mut().unwrap().push(shipper);
    // Of a container that does not exist kubectl takes no notice either.
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"] = json!("gone");
    let warnings = cluster.injected(&pod).warnings.join("\n");
    assert!(
        warnings.contains("`app` runs under the lock, and the others run in every pod"),
        "{warnings}"
    );
}

#[test]
fn a_copy_of_an_injected_pod_that_asks_for_another_lock_or_container_is_refused() {
    for (name, cluster) in golden() {
        let mut pod = cluster.injected(&pod_of(name)).pod;
        pod["metadata"]["labels"]["lockkeeper.io/lock"] = json!("other");
        pod["metadata"]["annotations"]["lockkeeper.io/lock"] = json!("other");
        let refusal = cluster.refusal(&pod);
        assert!(
            refusal.contains("LOCKKEEPER_LOCK is `/lockkeeper/locks/shop/")
                && refusal.contains("not `/lockkeeper/locks/shop/other`"),
            "{name}: {refusal}"
        );
    }
    let cluster = Cluster::new(NEW).image(&["/legacy"], &[], "daemon");
    let mut pod = cluster.injected(&pod_of("signal")).pod;
    pod["spec"]["containers"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "other", "image": "o" }));
    pod["metadata"]["annotations"]["lockkeeper.io/container"] = json!("other");
    let refusal = cluster.refusal(&pod);
    assert!(
        refusal.contains("LOCKKEEPER_CONTAINER is") && refusal.contains("not `other`"),
        "{refusal}"
    );
}
