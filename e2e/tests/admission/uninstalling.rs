//! The hooks of the chart's uninstallation, under their own rights.

use std::path::Path;
use std::process::{Command, Output};

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_product::beside::account::kubeconfig_of;
use lockkeeper_product::binaries;
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use crate::pods::{marked, workload};
use crate::webhooks::alone;

fn hook(kubeconfig: &Path, arguments: &[&str]) -> Output {
    Command::new(binaries::operator().unwrap())
        .arg("uninstall")
        .args(arguments)
        .env("KUBECONFIG", kubeconfig)
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_stays_while_something_is_behind_a_lock_and_leaves_no_finalizer_when_it_goes() {
    let Some(webhooks) = alone().await else { return };
    webhooks.apply_chart(&["uninstall"], &[]);
    // The Jobs of the hooks have no image here.
    let jobs = ["delete", "jobs", "--all", "--namespace", SYSTEM];
    webhooks.cluster.kubectl(&jobs).unwrap();
    let folder = webhooks.folder("uninstalling");
    let kubeconfig = kubeconfig_of(webhooks.cluster, &folder, "lockkeeper-uninstall");
    let kept = ["lockkeeper-guarded", "lockkeeper-workloads"];
    let before = || {
        let release = ["before", "--release", "lockkeeper", "--namespace", SYSTEM];
        hook(&kubeconfig, &release)
    };
    let after = || {
        let operator = ["after", "--deployment", "lockkeeper", "--namespace", SYSTEM];
        let policies = kept.iter().flat_map(|policy| ["--policy", policy]);
        hook(
            &kubeconfig,
            &operator.into_iter().chain(policies).collect::<Vec<_>>(),
        )
    };
    let client = webhooks.client().await;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());

    let space = webhooks.namespace("uninstalling").await;
    let named = json!({ "lockkeeper.io/lock": "report" });
    let create = |object: &Value| webhooks.kubectl(&space, &["create", "--filename=-"], object);
    for object in [workload("CronJob", "nightly", named.clone()), marked("alone")] {
        let said = create(&object);
        assert!(said.is_done, "{}", said.words);
    }
    // An operator would put the finalizer back as soon as it sees the lock.
    let locks = space.api::<DistributedLock>();
    eventually("the lock has its finalizer", async || {
        let lock = locks.get_opt("report").await.unwrap()?;
        (!lock.finalizers().is_empty()).then_some(())
    })
    .await;
    let refused = before();
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success(), "{words}");
    for part in [
        format!("cronjob {}/nightly", space.name),
        format!("pod {}/alone", space.name),
        "uninstall.allowUnguarded=true".to_owned(),
        "helm rollback lockkeeper --namespace".to_owned(),
    ] {
        assert!(words.contains(&part), "{words}");
    }
    for policy in kept {
        assert!(policies.get_opt(policy).await.unwrap().is_some(), "{policy}");
    }

    // Pods of earlier tests may still be terminating.
    let now = DeleteParams::default().grace_period(0);
    space.api::<Pod>().delete("alone", &now).await.unwrap();
    let unmark = ["annotate", "cronjob", "nightly", "lockkeeper.io/lock-"];
    assert!(webhooks.kubectl(&space, &unmark, &json!(null)).is_done);
    let said = create(&workload("Deployment", "plain", json!({})));
    assert!(said.is_done, "{}", said.words);
    eventually("nothing is behind a lock", async || {
        before().status.success().then_some(())
    })
    .await;
    assert!(
        space
            .api::<Deployment>()
            .get_opt("plain")
            .await
            .unwrap()
            .is_some()
    );

    // What a tool does that applies the hooks as plain objects: nothing.
    let installed = serde_json::from_value(workload("Deployment", "lockkeeper", json!({}))).unwrap();
    let in_system: Api<Deployment> = Api::namespaced(client.clone(), SYSTEM);
    in_system
        .create(&PostParams::default(), &installed)
        .await
        .unwrap();
    let refused = after();
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && words.contains("helm template --no-hooks"),
        "{words}"
    );
    for policy in kept {
        assert!(policies.get_opt(policy).await.unwrap().is_some(), "{policy}");
        assert!(bindings.get_opt(policy).await.unwrap().is_some(), "{policy}");
    }
    let lock = locks.get("report").await.unwrap();
    assert!(!lock.finalizers().is_empty(), "{lock:#?}");

    // Helm has deleted the operator by then.
    in_system
        .delete("lockkeeper", &DeleteParams::default())
        .await
        .unwrap();
    drop(webhooks.take_operator());
    let done = after();
    assert!(done.status.success(), "{done:?}");
    for policy in kept {
        assert!(policies.get_opt(policy).await.unwrap().is_none(), "{policy}");
        assert!(bindings.get_opt(policy).await.unwrap().is_none(), "{policy}");
    }
    let all: Api<DistributedLock> = Api::all(client);
    let left = all.list(&ListParams::default()).await.unwrap();
    let keeps = |lock: &DistributedLock| !lock.finalizers().is_empty();
    assert!(!left.items.iter().any(keeps), "{left:#?}");
    assert!(
        locks.get_opt("report").await.unwrap().is_some(),
        "what users have made stays"
    );
    // The lock has no finalizer any more.
    locks.delete("report", &DeleteParams::default()).await.unwrap();
    assert!(locks.get_opt("report").await.unwrap().is_none());

    webhooks.apply_chart(&["policy", "policy-workloads"], &[]);
    webhooks.put_operator(webhooks.operator("operator-again", &[]).await);
    webhooks.wait_until_injected().await;
    space.abandon().await;
}
