//! Admission reviews, through to the answer.

use std::time::Duration;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_crds::keys::{self, KeyError};
use lockkeeper_daemon::log::LogFormat;
use lockkeeper_daemon::token::AppToken;
use lockkeeper_operator::admission::inject::{
    ClusterFacts, Context, ImageConfig, ImageUnknown, Refusal, Replicas, SidecarConfig, Subject,
    image_question, inject,
};
use lockkeeper_operator::admission::webhook::review::{self, Decision, Request};
use lockkeeper_operator::admission::webhook::workloads;
use lockkeeper_operator::fuzzing::{REVIEW_LIMITS, weight};
use serde_json::{Value, json};

use crate::Target;

/// Memory of a decision beside the review itself: the injected parts, and the comparisons here.
const BESIDE: usize = 512 * 1024;

/// Words for both targets.
const WORDS: &[&str] = &[
    "{},",
    "null",
    "[]",
    "{}",
    "\"\"",
    "{\"\":0},",
    "lockkeeper.io/lock",
    "lockkeeper.io/guard",
    "lockkeeper.io/container",
    "lockkeeper.io/injected",
    "lockkeeper.io/propagated",
    "\"signal\"",
    "\"wrap\"",
    "\"containers\":[",
    "\"initContainers\":[",
    "\"volumes\":[",
    "\"ephemeralContainers\":[",
    "\"env\":[",
    "\"name\":\"lockkeeper\"",
    "\"restartPolicy\":\"Always\"",
    "\\u0000",
    "\"CREATE\"",
    "\"UPDATE\"",
    "\"Deployment\"",
    "\"CronJob\"",
    "\"Job\"",
];

pub(crate) const POD_REVIEWS: Target = Target {
    name: "pod-reviews",
    longest: 16 * 1024,
    // The memory that the operator keeps free for it: the webhook waits until this much is free before it
    // reads a review. Here it decides on a pod twice, and three copies of the pod are compared.
    bound: |input| 2 * weight(input) + BESIDE,
    seeds: || {
        let app = json!({"name": "app", "image": "registry.example/app:1", "command": ["/app"], "ports": [{"containerPort": 8080}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5},
            "lifecycle": {"preStop": {"exec": {"command": ["/drain"]}}}, "env": [{"name": "A", "value": "b"}]});
        let bare = json!({"name": "app", "image": "app"});
        let pod = |annotations: Value, spec: Value| {
            let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "report-1", "namespace": "shop",
                "annotations": annotations, "labels": {"app": "report"}}, "spec": spec});
            request("Pod", &pod)
        };
        let lock = json!({"lockkeeper.io/lock": "report"});
        let whole = pod(
            lock.clone(),
            json!({"containers": [app], "volumes": [{"name": "data", "emptyDir": {}}]}),
        );
        let injected = match decide_pod(&review::parse(&whole).expect("a review")) {
            Ok(Decision {
                object: Some(pod), ..
            }) => request("Pod", &pod),
            other => panic!("{other:?}"),
        };
        let many = |of: &str| {
            let list = "{},".repeat(500);
            format!(
                "{{\"apiVersion\":\"admission.k8s.io/v1\",\"request\":{{\"uid\":\"7\",\"kind\":{{\"kind\":\"Pod\"}},\"operation\":\"CREATE\",\
                 \"object\":{{\"metadata\":{{\"annotations\":{{\"lockkeeper.io/lock\":\"a\"}}}},\"spec\":{{\"{of}\":[{list}{{}}]}}}}}}}}"
            )
        };
        let mut seeds = vec![
            whole,
            injected,
            pod(
                json!({"lockkeeper.io/lock": "report", "lockkeeper.io/guard": "signal"}),
                json!({"containers": [bare], "securityContext": {"runAsUser": 1000}, "shareProcessNamespace": true}),
            ),
            pod(
                lock.clone(),
                json!({"containers": [bare], "initContainers": null, "volumes": null, "nodeSelector": {"kubernetes.io/arch": "arm64"}}),
            ),
            pod(lock.clone(), json!({"containers": [], "hostPID": true})),
            pod(
                lock,
                json!({"containers": [{"name": "lockkeeper"}, {"name": "a", "ports": [{"containerPort": 9808}]}]}),
            ),
            pod(json!({}), json!({"containers": [bare]})),
            b"{\"apiVersion\":\"admission.k8s.io/v1beta1\"}".to_vec(),
        ];
        seeds.extend(
            [
                "containers",
                "volumes",
                "initContainers",
                "ephemeralContainers",
                "tolerations",
            ]
            .map(|of| many(of).into_bytes()),
        );
        seeds
    },
    words: WORDS,
    run: |input| {
        let Some(request) = read(input) else { return };
        let decision = decide_pod(&request);
        if let Ok(Decision {
            object: Some(pod), ..
        }) = &decision
        {
            let mut again = request.clone();
            again.object = pod.clone();
            match decide_pod(&again) {
                Ok(again) => assert_eq!(again.object.as_ref(), Some(pod), "nothing is injected twice"),
                // Its container has a name that the API server accepts in no pod, and that is now in a key.
                Err(Refusal::Keys(KeyError::Name {
                    key: keys::CONTAINER, ..
                })) => {}
                Err(refusal) => panic!("what was injected is refused: {refusal}"),
            }
        }
        answer(&request, decision);
    },
};

pub(crate) const WORKLOAD_REVIEWS: Target = Target {
    name: "workload-reviews",
    longest: 16 * 1024,
    // As for pods.
    bound: |input| 2 * weight(input) + BESIDE,
    seeds: || {
        let workload = |kind: &str, spec: Value| {
            let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "report", "annotations":
                {"lockkeeper.io/lock": "report", "lockkeeper.io/readiness": "holder"}}, "spec": spec});
            request(kind, &object)
        };
        let template = json!({"metadata": {"labels": {"app": "report"}}, "spec": {"containers": [{"name": "app", "image": "app"}]}});
        let copied = json!({"metadata": {"annotations": {"lockkeeper.io/lock": "old", "lockkeeper.io/guard": "wrap",
            "lockkeeper.io/propagated": "lockkeeper.io/lock,lockkeeper.io/guard"}, "labels": {"lockkeeper.io/lock": "old"}},
            "spec": {"hostPID": true, "os": {"name": "windows"}}});
        vec![
            workload("Deployment", json!({"replicas": 3, "template": template})),
            workload("Job", json!({"parallelism": 2, "template": copied})),
            workload(
                "CronJob",
                json!({"jobTemplate": {"spec": {"template": template}}}),
            ),
            workload(
                "DaemonSet",
                json!({"template": {"metadata": {"annotations": null, "labels": null}}}),
            ),
            workload(
                "StatefulSet",
                json!({"template": {"metadata": {"managedFields": [{}, {}]}}}),
            ),
            workload("ReplicaSet", json!({"template": template})),
        ]
    },
    words: WORDS,
    run: |input| {
        let Some(request) = read(input) else { return };
        let kind = request.kind.kind.as_str();
        let is_new = request.operation == "CREATE";
        let decision = workloads::copy(kind, &request.object, is_new).map(|copied| {
            if let Some(wish) = &copied.request {
                let _ = workloads::advise(kind, &request.object, wish, None, true);
            }
            if let Some(object) = &copied.object {
                let again = workloads::copy(kind, object, is_new).expect("what was copied is accepted");
                assert_eq!(again.object, None, "nothing is copied twice");
            }
            Decision {
                object: copied.object,
                warnings: copied.warnings,
            }
        });
        answer(&request, decision);
    },
};

fn request(kind: &str, object: &Value) -> Vec<u8> {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "7",
        "kind": {"group": "", "version": "v1", "kind": kind}, "namespace": "shop", "operation": "CREATE", "object": object}});
    serde_json::to_vec(&review).expect("JSON")
}

/// As the server does: it rejects reviews that are too long or too heavy.
fn read(input: &[u8]) -> Option<Request> {
    let (longest, heaviest) = REVIEW_LIMITS;
    if input.len() > longest || weight(input) > heaviest {
        return None;
    }
    review::parse(input).ok()
}

fn decide_pod(request: &Request) -> Result<Decision, Refusal> {
    let subject = Subject::read(&request.object)?;
    let question = image_question(&subject)?;
    let cluster = ClusterFacts {
        is_known: true,
        image_volumes: true,
        file_key_ref: true,
        restart_all_containers: true,
    };
    let sidecar = SidecarConfig {
        image: "registry.example/lockkeeper:1".to_owned(),
        pull_policy: None,
        resources: Default::default(),
        connect: Some("zk:2181".to_owned()),
        own_connect: "zk:2181".to_owned(),
        has_certificate: false,
        tick_time: Duration::from_secs(2),
        root: "/lockkeeper".to_owned(),
        log_format: LogFormat::Json,
        readers: Vec::new(),
    };
    // Two kinds of images, depending on the pod: with a command and a user, and of an unknown registry.
    let image = match &question {
        None => Err(ImageUnknown::NotAsked),
        Some(question) if question.architecture.is_some() => {
            Err(ImageUnknown::Lasting("it is away".to_owned()))
        }
        Some(_) => Ok(ImageConfig {
            entrypoint: vec!["/app".to_owned()],
            cmd: Vec::new(),
            user: "1000".to_owned(),
        }),
    };
    let lock = DistributedLockSpec::default();
    let token = AppToken::parse("Zm9vYmFyYmF6cXV4cXV1eA").expect("long enough");
    let context = Context {
        cluster: &cluster,
        sidecar: &sidecar,
        namespace: &request.namespace,
        lock: subject.lock().filter(|name| name.len() % 2 == 0).map(|_| &lock),
        ensemble: "b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001",
        ungated: None,
        replicas: Replicas::Many,
        app_token: &token,
        image: image.as_ref(),
        client_certificate: false,
    };
    let injection = inject(&subject, &context)?;
    Ok(injection.map_or_else(Decision::default, |injection| {
        let annotations = &injection.pod["metadata"]["annotations"];
        assert_eq!(
            annotations[keys::LOCK].as_str(),
            subject.lock(),
            "it is put behind the lock that it names"
        );
        Decision {
            object: Some(injection.pod),
            warnings: injection.warnings,
        }
    }))
}

/// Checks that the answer states the decision.
fn answer(request: &Request, decision: Result<Decision, Refusal>) {
    let decision = decision.map_err(|refusal| refusal.to_string());
    let expected = decision.as_ref().map(|decision| decision.object.clone());
    let expected = expected.map_err(Clone::clone);
    let answer = review::answer(request, decision);
    let answer: Value = serde_json::from_slice(&answer).expect("JSON");
    let response = &answer["response"];
    assert_eq!(response["uid"], request.uid.as_str());
    assert_eq!(response["allowed"], expected.is_ok());
    let message = response["status"]["message"].as_str();
    assert_eq!(message, expected.as_ref().err().map(String::as_str));
    if let Ok(Some(object)) = expected {
        assert_eq!(response.get("patch").is_none(), object == request.object);
    }
}
