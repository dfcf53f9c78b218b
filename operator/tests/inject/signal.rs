//! Guarding by signals.

use lockkeeper_operator::admission::inject::{ClusterFacts, ImageUnknown, Mode};
use serde_json::{Value, json};

use crate::cluster::{Cluster, NEW, OLD, pod_of, sidecar, simple};

#[test]
fn the_guard_by_signals_is_the_applications_user_or_root_with_one_capability() {
    let mut pod = simple();
    pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("signal");
    let security =
        |cluster: &Cluster, pod: &Value| sidecar(&cluster.injected(pod).pod)["securityContext"].clone();
    let numeric = security(&Cluster::new(NEW).image(&[], &[], "1000:1000"), &pod);
    assert_eq!(
        (&numeric["runAsUser"], &numeric["capabilities"]),
        (&json!(1000), &json!({ "drop": ["ALL"] }))
    );
    let named = security(&Cluster::new(NEW).image(&[], &[], "daemon"), &pod);
    assert_eq!(named["runAsUser"], 0);
    assert_eq!(named["capabilities"], json!({ "add": ["KILL"], "drop": ["ALL"] }));
    pod["spec"]["securityContext"] = json!({ "runAsUser": 7 });
    assert_eq!(security(&Cluster::new(NEW), &pod)["runAsUser"], 7);
}

#[test]
fn a_container_guarded_by_signals_keeps_its_guards_user_whatever_image_comes_later() {
    let context = |cluster: Cluster, pod: &Value| {
        let pod = cluster.injected(pod).pod;
        let guarded = pod["spec"]["containers"][0]["securityContext"].clone();
        (guarded, sidecar(&pod)["securityContext"]["runAsUser"].clone())
    };
    let of = |user: &str| Cluster::new(NEW).image(&["/x"], &[], user);
    let signal = pod_of("signal");
    let mut non_root = signal.clone();
    non_root["spec"]["securityContext"] = json!({ "runAsNonRoot": true });
    // Kubelets do not look at the group.
    for user in ["1000", "1000:2000", "1000:daemon"] {
        for pod in [&signal, &non_root] {
            assert_eq!(
                context(of(user), pod),
                (json!({ "runAsUser": 1000 }), json!(1000)),
                "{user}"
            );
        }
    }
    // Only the image knows the number of a name, and root with KILL may signal any user.
    for user in ["daemon", "0", ""] {
        assert_eq!(context(of(user), &signal), (Value::Null, json!(0)), "{user}");
    }
    let mut stated = signal;
    stated["spec"]["securityContext"] = json!({ "runAsUser": 7 });
    assert_eq!(context(of("1000:2000"), &stated), (Value::Null, json!(7)));
}

#[test]
fn without_restart_rules_the_kubelet_still_starts_nothing_without_the_lease_file() {
    let cluster = Cluster::new(ClusterFacts {
        restart_all_containers: false,
        ..NEW
    })
    .image(&["/x"], &[], "");
    let injected = cluster.injected(&pod_of("signal")).pod;
    assert_eq!(sidecar(&injected)["restartPolicyRules"], Value::Null);
    let gate = &injected["spec"]["containers"][0]["env"][0]["valueFrom"]["fileKeyRef"];
    assert_eq!(gate["path"], "lease.env");
    assert_eq!(gate["optional"], false);
}

#[test]
fn an_image_without_a_known_command_is_guarded_by_signals_where_that_is_safe() {
    let mut pod = simple();
    pod["spec"]["containers"][0]["command"].take();
    let injected = Cluster::new(NEW).injected(&pod);
    assert_eq!(injected.mode, Mode::Signal);
    assert!(
        injected.warnings[0].contains("it was not looked up"),
        "{:?}",
        injected.warnings
    );
    let refusal = Cluster::new(OLD).refusal(&pod);
    assert!(refusal.contains("set `command` in the pod"), "{refusal}");
}

#[test]
fn a_registry_that_is_away_for_a_moment_refuses_the_pod_and_only_a_fact_chooses_the_weaker_guard() {
    let mut pod = simple();
    pod["spec"]["containers"][0]["command"].take();
    let said = "the registry did not answer".to_owned();
    let mut cluster = Cluster::new(NEW);
    for guard in ["auto", "wrap", "signal"] {
        pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!(guard);
        cluster.image = Err(ImageUnknown::Passing(said.clone()));
        let refusal = cluster.refusal(&pod);
        assert!(
            refusal.contains(&said) && refusal.contains("refused for now"),
            "{refusal}"
        );
    }
    pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("auto");
    cluster.image = Err(ImageUnknown::Lasting(said));
    assert_eq!(cluster.injected(&pod).mode, Mode::Signal);
    cluster.image = Ok(Default::default());
    assert_eq!(cluster.injected(&pod).mode, Mode::Signal);
}

#[test]
fn the_mode_is_on_the_pod_whoever_chose_it() {
    for (name, cluster, mode) in [
        ("probes", Cluster::new(NEW), "wrap"),
        ("signal", Cluster::new(NEW), "signal"),
    ] {
        let mut pod = pod_of(name);
        pod["metadata"]["labels"]["lockkeeper.io/guard"] = json!("auto");
        pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!("auto");
        let injected = cluster.injected(&pod).pod;
        for keys in ["labels", "annotations"] {
            assert_eq!(injected["metadata"][keys]["lockkeeper.io/guard"], mode, "{name}");
        }
        // As a webhook that is asked again sees it.
        assert_eq!(cluster.injected(&injected).pod, injected);
    }
}

#[test]
fn no_pod_is_guarded_by_signals_where_a_kubelet_would_start_it_without_its_gate() {
    let mut pod = simple();
    pod["spec"]["containers"][0]["command"].take();
    let mut cluster = Cluster::new(NEW).image(&[], &[], "daemon");
    cluster.ungated = Some("node old has kubelet v1.34.9".to_owned());
    for guard in ["auto", "signal"] {
        pod["metadata"]["annotations"]["lockkeeper.io/guard"] = json!(guard);
        let refusal = cluster.refusal(&pod);
        assert!(
            refusal.contains("node old has kubelet v1.34.9") && refusal.contains("nodeSelector"),
            "{refusal}"
        );
    }
    // With the guard as its first process it is no matter of the kubelet's.
    assert_eq!(cluster.injected(&simple()).mode, Mode::Wrap);
    let unknown = Cluster::new(Default::default())
        .image(&[], &[], "daemon")
        .refusal(&pod);
    assert!(
        unknown.contains("has not found out what the API server can do"),
        "{unknown}"
    );
}

#[test]
fn a_pod_whose_sidecar_ends_without_saying_that_nothing_is_left_is_gated_anew() {
    use lockkeeper_daemon::exit::Exit;
    let injected = Cluster::new(NEW)
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
    let cannot_begin = [Exit::Usage, Exit::Unavailable, Exit::CannotCreate, Exit::Refused].map(Exit::code);
    for code in [&[0, 143][..], &cannot_begin].concat() {
        assert!(!fires(code), "{code}");
    }
}
