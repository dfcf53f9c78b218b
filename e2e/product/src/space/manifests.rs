//! The objects that tests create.

use std::sync::OnceLock;

use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::Cluster;
use serde_json::{Value, json};

use super::Space;
use crate::binaries;

/// Settings of a lock whose holder keeps it for minutes on a busy machine: with a tick of 1 s it tolerates some 14 s without
/// an answer, and with the settings of [`Space::lock`] some 9 s.
pub fn calm() -> Value {
    json!({ "sessionTimeout": "30s" })
}

/// Settings of a lock that is soon lost without an answer, after 2.1 s: where a loss is what a test is about.
pub fn short() -> Value {
    json!({ "sessionTimeout": "6s" })
}

/// Arguments of a recorder that runs until [`Space::end_application`].
pub const UNTIL_TOLD: [&str; 2] = ["--until", "/records/end"];

impl Space {
    /// A lock that moves when a test wants it to.
    pub fn lock(&self, name: &str, spec: &Value) -> Value {
        let mut lock = json!({
            "apiVersion": "lockkeeper.io/v1alpha1",
            "kind": "DistributedLock",
            "metadata": { "name": name, "namespace": self.name },
            "spec": { "sessionTimeout": "20s", "stopGrace": "600ms" },
        });
        merge(&mut lock["spec"], spec);
        lock
    }

    /// A container that records under the pod's name, with further arguments of the recorder.
    pub fn recording(&self, words: &[&str]) -> Value {
        let command = [&["/program", "/records/record", "--name", "$(POD)"], words].concat();
        json!({
            "name": "app",
            "image": recorder(self.cluster),
            "command": command,
            "env": [{ "name": "POD", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }],
            "volumeMounts": [{ "name": "records", "mountPath": "/records" }],
        })
    }

    /// A pod template with these containers.
    pub fn pod(&self, containers: &[Value]) -> Value {
        json!({
            "terminationGracePeriodSeconds": 10,
            "containers": containers,
            "volumes": [{ "name": "records", "hostPath": { "path": self.records, "type": "Directory" } }],
            // A pod on each node, as far as possible, also after a rolling update.
            "topologySpreadConstraints": [{
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "matchLabelKeys": ["pod-template-hash"],
                "labelSelector": { "matchLabels": { "app": "worker" } },
            }],
            // Kubernetes replaces the pods of a dead node soon.
            "tolerations": [
                { "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2 },
                { "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2 },
            ],
        })
    }

    /// A workload whose pods are behind the lock of its name.
    pub fn workload(&self, kind: &str, name: &str, replicas: Option<u32>, pod: Value) -> Value {
        let mut workload = json!({
            "apiVersion": "apps/v1",
            "kind": kind,
            "metadata": {
                "name": name,
                "namespace": self.name,
                "annotations": { "lockkeeper.io/lock": name },
            },
            "spec": {
                "selector": { "matchLabels": { "app": "worker" } },
                "template": { "metadata": { "labels": { "app": "worker" } }, "spec": pod },
            },
        });
        if let Some(replicas) = replicas {
            workload["spec"]["replicas"] = json!(replicas);
        }
        workload
    }
}

/// The image of the recorder, which contains no other file, not even a shell.
pub fn recorder(cluster: &Cluster) -> &'static str {
    static IMAGE: OnceLock<String> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let program = binaries::static_recorder().unwrap();
        let tag = BootInstant::now().as_nanos();
        cluster
            .push_program(&format!("lockkeeper/recorder:{tag}"), &program)
            .unwrap()
    })
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
