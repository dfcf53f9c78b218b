//! The injection: whole pods against golden files (`UPDATE_GOLDEN=1` writes them), and single promises.

use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_operator::inject::{
    ClusterFacts, Context, ImageConfig, ImageQuestion, Injection, Mode, Refusal, Replicas, SidecarConfig,
    image_question, inject,
};
use serde_json::{Value, json};

const OLD: ClusterFacts = ClusterFacts {
    image_volumes: false,
    file_key_ref: false,
    restart_all_containers: false,
};
const NEW: ClusterFacts = ClusterFacts {
    image_volumes: true,
    file_key_ref: true,
    restart_all_containers: true,
};

/// What is known in a test beside the pod.
struct World {
    cluster: ClusterFacts,
    sidecar: SidecarConfig,
    lock: Option<DistributedLockSpec>,
    replicas: Replicas,
    image: Result<ImageConfig, String>,
}

impl World {
    fn new(cluster: ClusterFacts) -> Self {
        Self {
            cluster,
            sidecar: SidecarConfig {
                image: "registry.example/lockkeeper:0.1.0".to_owned(),
                pull_policy: None,
                resources: serde_json::from_value(
                    json!({ "requests": { "cpu": "10m", "memory": "16Mi" }, "limits": { "memory": "64Mi" } }),
                )
                .unwrap(),
                connect: Some("zk-0:2181,zk-1:2181".to_owned()),
                tick_time: Duration::from_secs(2),
                root: "/lockkeeper".to_owned(),
                readers: vec!["digest:operator:HASH=".to_owned()],
            },
            lock: None,
            replicas: Replicas::One,
            image: Err("it was not looked up".to_owned()),
        }
    }

    fn lock(mut self, spec: Value) -> Self {
        self.lock = Some(serde_json::from_value(spec).unwrap());
        self
    }

    fn image(mut self, entrypoint: &[&str], cmd: &[&str], user: &str) -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        self.image = Ok(ImageConfig {
            entrypoint: words(entrypoint),
            cmd: words(cmd),
            user: user.to_owned(),
        });
        self
    }

    fn inject(&self, pod: &Value) -> Result<Option<Injection>, Refusal> {
        inject(
            pod,
            &Context {
                cluster: &self.cluster,
                sidecar: &self.sidecar,
                namespace: "shop",
                lock: self.lock.as_ref(),
                replicas: self.replicas,
                image: self.image.as_ref().map_err(String::as_str),
                client_certificate: false,
            },
        )
    }

    fn injected(&self, pod: &Value) -> Injection {
        self.inject(pod)
            .unwrap_or_else(|refusal| panic!("{refusal}"))
            .expect("the pod names a lock")
    }

    fn refusal(&self, pod: &Value) -> String {
        let sentence = self.inject(pod).expect_err("the pod is refused").to_string();
        assert!(!sentence.contains('\n') && !sentence.ends_with('.'), "{sentence}");
        sentence
    }
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/pods")
        .join(name)
}

fn pod_of(name: &str) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(file(&format!("{name}.yaml"))).unwrap()).unwrap()
}

/// A pod with one container, `app`, whose command is given.
fn simple() -> Value {
    json!({
        "metadata": { "name": "app", "annotations": { "lockkeeper.io/lock": "app" } },
        "spec": { "containers": [{ "name": "app", "image": "app:1", "command": ["/app"] }] },
    })
}

fn env<'a>(container: &'a Value, name: &str) -> &'a Value {
    let mut all = container["env"].as_array().into_iter().flatten();
    all.find(|var| var["name"] == name)
        .map_or(&Value::Null, |var| &var["value"])
}

fn sidecar(pod: &Value) -> &Value {
    let last = pod["spec"]["initContainers"].as_array().unwrap().last().unwrap();
    assert_eq!(
        last["name"], "lockkeeper",
        "the sidecar is not the last init container"
    );
    last
}

/// The pods of the golden files, and the worlds that they come into.
fn golden() -> [(&'static str, World); 4] {
    [
        ("probes", World::new(NEW)),
        (
            "image-command",
            World::new(OLD).image(&["/entry", "$(x)"], &["serve"], ""),
        ),
        ("guaranteed", World::new(NEW)),
        ("signal", World::new(NEW).image(&["/legacy"], &[], "daemon")),
    ]
}

#[test]
fn a_pod_gets_exactly_what_the_golden_files_show() {
    for (name, world) in golden() {
        let injected = world.injected(&pod_of(name)).pod;
        let path = file(&format!("{name}.injected.yaml"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, serde_saphyr::to_string(&injected).unwrap()).unwrap();
        }
        let expected: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(
            injected, expected,
            "{name}: run with UPDATE_GOLDEN=1 and look at the difference"
        );
    }
}

#[test]
fn to_inject_twice_is_to_inject_once() {
    for (name, world) in golden() {
        let once = world.injected(&pod_of(name));
        let twice = world.injected(&once.pod);
        assert_eq!(twice.pod, once.pod, "{name}");
        assert_eq!(twice.mode, once.mode, "{name}");
        assert_eq!(
            image_question(&once.pod),
            Ok(None),
            "{name}: nothing is looked up twice"
        );
    }
}

#[test]
fn the_sidecar_is_last_again_after_another_injector_came_after_us() {
    for (name, world) in golden() {
        let mut pod = world.injected(&pod_of(name)).pod;
        let other = json!({ "name": "mesh", "image": "mesh:1", "restartPolicy": "Always" });
        pod["spec"]["initContainers"]
            .as_array_mut()
            .unwrap()
            .push(other.clone());
        // A container before ours does not become the guarded one.
        pod["spec"]["containers"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "name": "front", "image": "f" }));
        let again = world.injected(&pod).pod;
        sidecar(&again);
        assert!(
            again["spec"]["initContainers"]
                .as_array()
                .unwrap()
                .contains(&other)
        );
        assert_eq!(again["spec"]["containers"][0]["command"], Value::Null, "{name}");
    }
}

#[test]
fn the_guard_is_the_first_process_again_after_another_injector_wrapped_it() {
    let world = World::new(NEW);
    let mut pod = world.injected(&simple()).pod;
    let app = &mut pod["spec"]["containers"][0];
    app["args"] = app["command"].take();
    app["command"] = json!(["/vault/vault-env"]);
    let again = world.injected(&pod).pod;
    let app = &again["spec"]["containers"][0];
    assert_eq!(
        app["command"],
        json!(["/lockkeeper/lockkeeper", "guard", "--", "/vault/vault-env"])
    );
    assert_eq!(app["args"], json!(["/app"]));
}

#[test]
fn a_pod_without_a_lock_is_left_alone_and_so_is_a_mirror_pod() {
    let mut pod = simple();
    pod["metadata"]["annotations"] = json!({ "note": "x" });
    assert_eq!(World::new(OLD).inject(&pod), Ok(None));
    let mut mirror = simple();
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = json!("x");
    assert_eq!(World::new(OLD).inject(&mirror), Ok(None));
}

#[test]
fn fields_that_we_do_not_know_are_kept() {
    let mut pod = simple();
    pod["spec"]["fieldOfTheFuture"] = json!({ "a": 1 });
    pod["spec"]["containers"][0]["another"] = json!([1]);
    let injected = World::new(NEW).injected(&pod).pod;
    assert_eq!(injected["spec"]["fieldOfTheFuture"], json!({ "a": 1 }));
    assert_eq!(injected["spec"]["containers"][0]["another"], json!([1]));
}

#[test]
fn the_command_of_an_image_is_taken_as_kubernetes_would() {
    let world = World::new(OLD).image(&["/entry", "-x"], &["serve", "$(HOME)"], "");
    let command = ["/lockkeeper/lockkeeper", "guard", "--"];
    for (given, rest, args) in [
        (json!({}), vec!["/entry", "-x"], json!(["serve", "$$(HOME)"])),
        (
            json!({ "args": ["$(MODE)"] }),
            vec!["/entry", "-x"],
            json!(["$(MODE)"]),
        ),
        (json!({ "command": ["/own"] }), vec!["/own"], Value::Null),
    ] {
        let mut pod = simple();
        pod["spec"]["containers"][0] = json!({ "name": "app", "image": "app:1" });
        for (field, words) in given.as_object().unwrap() {
            pod["spec"]["containers"][0][field] = words.clone();
        }
        let app = world.injected(&pod).pod["spec"]["containers"][0].clone();
        assert_eq!(
            app["command"],
            json!([&command[..], &rest[..]].concat()),
            "{given}"
        );
        assert_eq!(app["args"], args, "{given}");
    }
}

#[test]
fn an_image_is_looked_up_only_where_something_depends_on_it() {
    let mut pod = simple();
    assert_eq!(image_question(&pod), Ok(None));
    pod["spec"]["containers"][0]["command"].take();
    pod["spec"]["nodeSelector"] = json!({ "kubernetes.io/arch": "arm64" });
    let question = ImageQuestion {
        image: "app:1".to_owned(),
        architecture: Some("arm64".to_owned()),
    };
    assert_eq!(image_question(&pod), Ok(Some(question.clone())));
    pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("signal");
    assert_eq!(image_question(&pod), Ok(Some(question)));
    pod["spec"]["securityContext"] = json!({ "runAsUser": 7 });
    assert_eq!(image_question(&pod), Ok(None));
}

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

#[test]
fn a_pod_keeps_its_class_of_service() {
    let resources = |pod: &Value| sidecar(&World::new(NEW).injected(pod).pod)["resources"].clone();
    assert_eq!(resources(&simple()), json!({}), "BestEffort");
    let mut pod = simple();
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "1Mi" } });
    assert_eq!(resources(&pod)["requests"]["cpu"], "10m", "Burstable");
    pod["spec"]["containers"][0]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Mi" } });
    let guaranteed = resources(&pod);
    assert_eq!(
        guaranteed["limits"],
        json!({ "cpu": "100m", "memory": "64Mi" }),
        "Guaranteed"
    );
    assert_eq!(guaranteed["requests"], guaranteed["limits"], "Guaranteed");
    pod["spec"]["resources"] = json!({ "limits": { "cpu": "1", "memory": "1Mi" } });
    assert_eq!(resources(&pod), json!({}), "resources of the whole pod");
}

#[test]
fn nothing_that_is_added_in_wrap_mode_breaks_the_restricted_level_of_pod_security() {
    for (name, world) in golden() {
        let injected = world.injected(&pod_of(name));
        if injected.mode == Mode::Signal {
            continue;
        }
        let inits = injected.pod["spec"]["initContainers"].as_array().unwrap();
        for container in inits
            .iter()
            .filter(|c| c["name"].as_str().unwrap().starts_with("lockkeeper"))
        {
            let security = &container["securityContext"];
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["runAsNonRoot"], true, "{name}");
            assert_ne!(security["runAsUser"], 0, "{name}");
            assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }), "{name}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{name}");
        }
    }
}

#[test]
fn the_guard_by_signals_is_the_applications_user_or_root_with_one_capability() {
    let mut pod = simple();
    pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("signal");
    let security = |world: &World, pod: &Value| sidecar(&world.injected(pod).pod)["securityContext"].clone();
    let numeric = security(&World::new(NEW).image(&[], &[], "1000:1000"), &pod);
    assert_eq!(
        (&numeric["runAsUser"], &numeric["capabilities"]),
        (&json!(1000), &json!({ "drop": ["ALL"] }))
    );
    let named = security(&World::new(NEW).image(&[], &[], "daemon"), &pod);
    assert_eq!(named["runAsUser"], 0);
    assert_eq!(named["capabilities"], json!({ "add": ["KILL"], "drop": ["ALL"] }));
    pod["spec"]["securityContext"] = json!({ "runAsUser": 7 });
    assert_eq!(security(&World::new(NEW), &pod)["runAsUser"], 7);
}

#[test]
fn a_pod_whose_sidecar_ends_without_saying_that_nothing_is_left_is_gated_anew() {
    use lockkeeper_sidecar::exit::Exit;
    let injected = World::new(NEW)
        .image(&["/legacy"], &[], "daemon")
        .injected(&pod_of("signal"))
        .pod;
    let rule = &sidecar(&injected)["restartPolicyRules"][0];
    assert_eq!(rule["action"], "RestartAllContainers");
    assert_eq!(rule["exitCodes"]["operator"], "NotIn");
    let nothing_left = rule["exitCodes"]["values"].as_array().unwrap();
    let fires = |code: u8| !nothing_left.contains(&json!(code));
    // Killed (by the OOM killer, say), aborted, crashed, or without a working guard.
    for code in [Exit::GateAnew.code(), Exit::Software.code(), 137, 134, 139, 255] {
        assert!(fires(code), "{code}");
    }
    // Asked to end, or unable to begin: that would not be better after the next start either.
    let cannot_begin = [Exit::Usage, Exit::Unavailable, Exit::CannotCreate].map(Exit::code);
    for code in [&[0, 143][..], &cannot_begin].concat() {
        assert!(!fires(code), "{code}");
    }
}

#[test]
fn without_restart_rules_the_kubelet_still_starts_nothing_without_the_lease_file() {
    let world = World::new(ClusterFacts {
        restart_all_containers: false,
        ..NEW
    })
    .image(&["/x"], &[], "");
    let injected = world.injected(&pod_of("signal")).pod;
    assert_eq!(sidecar(&injected)["restartPolicyRules"], Value::Null);
    let gate = &injected["spec"]["containers"][0]["env"][0]["valueFrom"]["fileKeyRef"];
    assert_eq!(gate["path"], "lease.env");
    assert_eq!(gate["optional"], false);
}

#[test]
fn an_image_without_a_known_command_is_guarded_by_signals_where_that_is_safe() {
    let mut pod = simple();
    pod["spec"]["containers"][0]["command"].take();
    let injected = World::new(NEW).injected(&pod);
    assert_eq!(injected.mode, Mode::Signal);
    assert!(
        injected.warnings[0].contains("it was not looked up"),
        "{:?}",
        injected.warnings
    );
    let refusal = World::new(OLD).refusal(&pod);
    assert!(refusal.contains("set `command` in the pod"), "{refusal}");
}

/// One step to a pod, or value of a key, that is refused.
type Edit = fn(&mut Value);

#[test]
fn a_bad_pod_gets_one_clear_sentence() {
    let cases: [(Edit, &str); 18] = [
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
        let refusal = World::new(NEW).refusal(&pod);
        assert!(refusal.contains(part), "{part:?} is not in {refusal:?}");
    }
}

#[test]
fn what_cannot_be_guarded_safely_is_refused_with_the_way_out() {
    let mut shared = simple();
    shared["spec"]["shareProcessNamespace"] = json!(true);
    shared["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("wrap");
    assert!(
        World::new(NEW)
            .refusal(&shared)
            .contains("set lockkeeper.io/guard to `signal`")
    );
    assert!(
        World::new(OLD)
            .refusal(&shared)
            .ends_with("remove shareProcessNamespace")
    );

    let signal = pod_of("signal");
    assert!(
        World::new(OLD)
            .refusal(&signal)
            .contains("set `command` in the pod, so that it can be wrapped")
    );
    let pausing = World::new(NEW).lock(json!({ "onLoss": "Pause" }));
    assert!(
        pausing
            .refusal(&signal)
            .contains("onLoss of the lock to its default")
    );
    let mut non_root = signal.clone();
    non_root["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
    assert!(
        World::new(NEW)
            .refusal(&non_root)
            .contains("set securityContext.runAsUser")
    );
    let mut unshared = signal;
    unshared["spec"]["shareProcessNamespace"] = json!(false);
    assert!(
        World::new(NEW)
            .refusal(&unshared)
            .contains("shareProcessNamespace is false")
    );

    let mut nowhere = World::new(NEW);
    nowhere.sidecar.connect = None;
    assert!(nowhere.refusal(&simple()).contains("spec.zookeeper.connect"));
    let tight = World::new(NEW).lock(json!({ "sessionTimeout": "6s", "stopGrace": "5s" }));
    assert!(
        tight
            .refusal(&simple())
            .starts_with("DistributedLock `app` is not valid: ")
    );
}
