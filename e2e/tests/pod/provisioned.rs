//! An operator makes lock root and control node, with only the rights that a keeper needs, and none above
//! them.

use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::ensemble::{block_on, connector};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission};

use crate::judging::is_root;

const OPERATOR: &str = "operator:op-secret";
const NAMESPACE: &str = "ns-shop:ns-secret";

// `echo -n NAME:PASSWORD | openssl dgst -sha1 -binary | base64`
const OPERATOR_ID: &str = "operator:APUnKgBDVkNBiXQOuCIEls980H0=";
const NAMESPACE_ID: &str = "ns-shop:hdGUygrEz9+1+tpzFlZ7aitP/ow=";

/// The agreement of an exclusive lock, as it is in the lock root.
const EXCLUSIVE: &[u8] = br#"{"v":1,"kind":"exclusive","maxHolders":1}"#;

/// The path in the ensemble, with the chroot of the pods.
const ROOT: &str = "/tenant/lockkeeper/locks/shop/report";
const CONTROL: &str = "/tenant/lockkeeper/control/shop/report";

fn only(id: &str, permission: Permission) -> Vec<Acl> {
    vec![
        Acl::new(Permission::ALL, AuthId::new("digest", OPERATOR_ID)),
        Acl::new(permission, AuthId::new("digest", id)),
    ]
}

fn operator<T: Send>(ensemble: &Ensemble, work: impl AsyncFnOnce(Client) -> T + Send) -> T {
    let connect = ensemble.connect_string();
    block_on(ensemble.observer(), || async {
        let client = connector().connect(&connect).await.unwrap();
        client.auth("digest", OPERATOR.as_bytes()).await.unwrap();
        // The client may be connected to another server, which lags.
        client.sync("/").await.unwrap();
        work(client).await
    })
    .unwrap()
}

/// Makes a node, and its parents with rights only for the operator.
fn provide(ensemble: &Ensemble, path: &str, acls: &[Acl]) {
    operator(ensemble, async |client| {
        let own = [Acl::new(Permission::ALL, AuthId::new("digest", OPERATOR_ID))];
        let parents = CreateMode::Persistent.with_acls(Acls::new(&own));
        client
            .mkdir(path.rsplit_once('/').unwrap().0, &parents)
            .await
            .unwrap();
        let node = CreateMode::Persistent.with_acls(Acls::new(acls));
        let data = if path == ROOT { EXCLUSIVE } else { b"" };
        client.create(path, data, &node).await.unwrap();
    });
}

fn children(ensemble: &Ensemble) -> Vec<String> {
    operator(ensemble, async |client| client.list_children(ROOT).await.unwrap())
}

/// It tries again, because contenders may come as long as the root exists.
fn delete_the_lock(ensemble: &Ensemble) {
    operator(ensemble, async |client| {
        loop {
            let names = match client.list_children(ROOT).await {
                Err(Error::NoNode) => break,
                names => names.unwrap(),
            };
            for name in names {
                let _ = client.delete(&format!("{ROOT}/{name}"), None).await;
            }
            let _ = client.delete(ROOT, None).await;
        }
    });
}

fn pod(ensemble: &Ensemble, name: &str) -> Pod {
    pod_with(ensemble, name, &[])
}

fn pod_with(ensemble: &Ensemble, name: &str, more: &[&str]) -> Pod {
    let auth = ensemble.directory().join("auth");
    std::fs::write(&auth, format!("digest:{NAMESPACE}\n")).unwrap();
    let connect = format!("{}/tenant", ensemble.connect_string());
    let reader = format!("digest:{OPERATOR_ID}");
    let mut pod = Pod::empty(ensemble, name);
    pod.start_sidecar_at(
        &connect,
        "/lockkeeper/locks/shop/report",
        &[
            &[
                "--control",
                "/lockkeeper/control/shop/report",
                "--provisioned",
                "--auth-file",
                auth.to_str().unwrap(),
                "--reader",
                &reader,
                "--pod-namespace",
                "shop",
                "--pod-name",
                name,
                "--pod-uid",
                "u",
                "--pod-node",
                "n1",
                "--revision",
                "6c9d",
            ],
            more,
        ]
        .concat(),
    );
    pod.start_container(name, &[]);
    pod
}

/// Waits until the answers of both probes contain `part`.
fn says(pod: &Pod, part: &str) {
    for path in ["/readyz", "/queuedz"] {
        let said = || {
            pod.probe(path)
                .filter(|(status, body)| *status == 503 && body.contains(part))
        };
        wait_for(BOUND, said).unwrap_or_else(|| panic!("{:?}\n{}", pod.probe(path), pod.said()));
    }
}

#[test]
fn a_pod_waits_for_its_nodes_and_rights_and_needs_no_more_than_it_is_given() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let first = pod(&ensemble, "first");
    says(
        &first,
        "/lockkeeper/locks/shop/report is not provided: the node does not exist",
    );

    // At first without the right.
    provide(&ensemble, ROOT, &only("somebody:else", Permission::ALL));
    says(
        &first,
        "/lockkeeper/locks/shop/report is not provided: no right to do this",
    );
    let of_locks = Permission::READ | Permission::CREATE | Permission::DELETE;
    operator(&ensemble, async |client| {
        client
            .set_acl(ROOT, &only(NAMESPACE_ID, of_locks), None)
            .await
            .unwrap();
    });
    says(
        &first,
        "/lockkeeper/control/shop/report is not provided: the node does not exist",
    );
    let of_control = Permission::READ | Permission::WRITE;
    provide(&ensemble, CONTROL, &only(NAMESPACE_ID, of_control));
    let token = first.wait_until_it_runs(0);
    assert_eq!(first.probe("/readyz").unwrap().0, 200);

    // The operator's view of the contenders.
    let contenders = children(&ensemble);
    let data = operator(&ensemble, async |client| {
        client
            .get_data(&format!("{ROOT}/{}", contenders[0]))
            .await
            .unwrap()
            .0
    });
    let data: serde_json::Value = serde_json::from_slice(&data).unwrap();
    assert_eq!(
        data["pod"],
        serde_json::json!({"namespace":"shop","name":"first","uid":"u","node":"n1"})
    );
    assert_eq!(data["revision"], "6c9d");

    // A handoff works, and the control node records the clean release.
    let second = pod(&ensemble, "second");
    assert_eq!(
        second.lockkeeper(&["wait", "--for", "queued", "--timeout", "30s"]),
        Some(0)
    );
    assert_eq!(first.lockkeeper(&["release"]), Some(0));
    let next = second.wait_until_it_runs(token);
    let control = operator(&ensemble, async |client| {
        client.get_data(CONTROL).await.unwrap().0
    });
    let control: serde_json::Value = serde_json::from_slice(&control).unwrap();
    assert_eq!(control["lastRelease"][0]["token"], token);

    // The operator deletes everything while the lock is held: the application ends at once, and all pods
    // wait.
    delete_the_lock(&ensemble);
    for pod in [&first, &second] {
        says(pod, "/lockkeeper/locks/shop/report is not provided");
        assert_eq!(pod.lease_file(), None);
    }
    second.says("ContenderDeleted");
    provide(&ensemble, ROOT, &only(NAMESPACE_ID, of_locks));
    let again = || {
        let newest = |pod: &Pod| pod.records().iter().map(|record| record.token).max();
        [&first, &second]
            .into_iter()
            .find_map(|pod| newest(pod).filter(|token| *token > next))
    };
    wait_for(BOUND, again).unwrap_or_else(|| panic!("{}\n{}", first.said(), second.said()));
}

#[test]
fn a_pod_takes_no_lock_in_another_ensemble_than_it_was_made_for() {
    if !is_root() {
        return;
    }
    const ID: &str = "/tenant/lockkeeper/ensemble-id";
    const OURS: &str = "6f1d57a4-2c3b-4d5e-8f90-a1b2c3d4e5f6";
    let ensemble = Ensemble::start(Config::default()).unwrap();
    provide(&ensemble, ROOT, &only(NAMESPACE_ID, Permission::ALL));
    provide(&ensemble, CONTROL, &only(NAMESPACE_ID, Permission::ALL));
    let ours = [
        "--ensemble-id",
        OURS,
        "--ensemble-id-node",
        "/lockkeeper/ensemble-id",
    ];
    let pod = pod_with(&ensemble, "bound", &ours);
    says(
        &pod,
        "/lockkeeper/ensemble-id is not provided: the node does not exist",
    );
    let mut acls = only(NAMESPACE_ID, Permission::READ);
    acls.push(Acl::new(Permission::READ, AuthId::anyone()));
    provide(&ensemble, ID, &acls);
    says(
        &pod,
        "this is another ensemble than the lock's: /lockkeeper/ensemble-id holds no ID",
    );
    assert_eq!(children(&ensemble), [""; 0], "it queued");
    operator(&ensemble, async |client| {
        client.set_data(ID, OURS.as_bytes(), None).await.unwrap();
    });
    pod.wait_until_it_runs(0);
}
