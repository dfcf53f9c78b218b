//! The identity of a namespace is rotated under running pods: no pod is restarted, and pods of successive
//! generations share a queue.

use std::path::PathBuf;

use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::ensemble::{block_on, connector};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use zookeeper_client::{Acl, Acls, AuthId, Client, CreateMode, Error, Permission};

use crate::judging::is_root;

const OPERATOR: &str = "operator:op-secret";

// `echo -n NAME:PASSWORD | openssl dgst -sha1 -binary | base64`
const OPERATOR_ID: &str = "operator:APUnKgBDVkNBiXQOuCIEls980H0=";

/// The generations of the namespace's identity, with their ids.
const GENERATIONS: [(&str, &str); 3] = [
    ("ns-shop.a:one", "ns-shop.a:HHLXLkc7af2De+5pI6SSBStssXw="),
    ("ns-shop.b:two", "ns-shop.b:z2bZ+7f07JKf3OTVO8xqaZHwLXk="),
    ("ns-shop.c:three", "ns-shop.c:5p7ddww/VRFJoYcSRWASlLswLGk="),
];

const STRANGER: &str = "ns-bank.a:other";

/// The agreement of an exclusive lock, as it is in the lock root.
const EXCLUSIVE: &[u8] = br#"{"v":1,"kind":"exclusive","maxHolders":1}"#;

const ROOT: &str = "/lockkeeper/locks/shop/report";
const CONTROL: &str = "/lockkeeper/control/shop/report";

fn client<T: Send>(ensemble: &Ensemble, identity: &str, work: impl AsyncFnOnce(Client) -> T + Send) -> T {
    let connect = ensemble.connect_string();
    block_on(ensemble.observer(), || async {
        let client = connector().connect(&connect).await.unwrap();
        client.auth("digest", identity.as_bytes()).await.unwrap();
        // The client may be connected to another server, which lags.
        client.sync("/").await.unwrap();
        work(client).await
    })
    .unwrap()
}

/// The rights of lock root and control node while these generations are valid.
fn rights(generations: &[(&str, &str)]) -> [Vec<Acl>; 2] {
    let of_root = Permission::READ | Permission::CREATE | Permission::DELETE;
    [of_root, Permission::READ | Permission::WRITE].map(|rights| {
        let own = Acl::new(Permission::ALL, AuthId::new("digest", OPERATOR_ID));
        let namespace = generations
            .iter()
            .map(|(_, id)| Acl::new(rights, AuthId::new("digest", id)));
        std::iter::once(own).chain(namespace).collect()
    })
}

fn provide(ensemble: &Ensemble) {
    let [root, control] = rights(&GENERATIONS[..1]);
    client(ensemble, OPERATOR, async |client| {
        let own = [Acl::new(Permission::ALL, AuthId::new("digest", OPERATOR_ID))];
        let parents = CreateMode::Persistent.with_acls(Acls::new(&own));
        for (path, acls) in [(ROOT, &root), (CONTROL, &control)] {
            let parent = path.rsplit_once('/').unwrap().0;
            client.mkdir(parent, &parents).await.unwrap();
            let node = CreateMode::Persistent.with_acls(Acls::new(acls));
            let data = if path == ROOT { EXCLUSIVE } else { b"" };
            client.create(path, data, &node).await.unwrap();
        }
    });
}

/// Rotates as an operator does: the nodes first, then the Secret, which a kubelet writes into the volumes.
fn rotate(ensemble: &Ensemble, generations: &[(&str, &str)], pods: &[&Pod]) {
    let [root, control] = rights(generations);
    client(ensemble, OPERATOR, async |client| {
        client.set_acl(ROOT, &root, None).await.unwrap();
        client.set_acl(CONTROL, &control, None).await.unwrap();
    });
    for pod in pods {
        write_auth(pod, generations);
    }
}

fn auth(pod: &Pod) -> PathBuf {
    pod.volume.join("auth")
}

/// Replaces the file atomically, as a kubelet does.
fn write_auth(pod: &Pod, generations: &[(&str, &str)]) {
    let lines: String = generations
        .iter()
        .map(|(identity, _)| format!("digest:{identity}\n"))
        .collect();
    std::fs::write(pod.volume.join("auth.new"), lines).unwrap();
    std::fs::rename(pod.volume.join("auth.new"), auth(pod)).unwrap();
}

fn pod(ensemble: &Ensemble, name: &str, generations: &[(&str, &str)]) -> Pod {
    let mut pod = Pod::empty(ensemble, name);
    write_auth(&pod, generations);
    let file = auth(&pod);
    let reader = format!("digest:{OPERATOR_ID}");
    let options = ["--control", CONTROL, "--provisioned", "--reader", &reader];
    let file = ["--auth-file", file.to_str().unwrap()];
    // The test restarts servers, possibly on a busy machine.
    let calm = ["--session-timeout", "20s"];
    pod.start_sidecar_at(
        &ensemble.connect_string(),
        ROOT,
        &[&options[..], &file, &calm].concat(),
    );
    pod.start_container(name, &[]);
    pod
}

/// Users of the ACL of each contender, in the order of the queue, as the operator sees them.
fn users(ensemble: &Ensemble) -> Vec<Vec<String>> {
    client(ensemble, OPERATOR, async |client| {
        let mut names = client.list_children(ROOT).await.unwrap();
        names.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
        let mut users = Vec::new();
        for name in names {
            // If one disappears in between, the caller tries again.
            let Ok((acls, _)) = client.get_acl(&format!("{ROOT}/{name}")).await else {
                continue;
            };
            let mut of_one: Vec<_> = acls
                .iter()
                .filter_map(|acl| Some(acl.id().split_once(':')?.0.to_owned()))
                .filter(|user| user != "operator")
                .collect();
            of_one.sort();
            users.push(of_one);
        }
        users
    })
}

fn wait_for_users(ensemble: &Ensemble, wanted: &[&[&str]]) {
    let right = || (users(ensemble) == wanted).then_some(());
    wait_for(BOUND, right).unwrap_or_else(|| panic!("{:?}, and not {wanted:?}", users(ensemble)));
}

fn is_queued(pod: &Pod) {
    let queued = pod.lockkeeper(&["wait", "--for", "queued", "--timeout", "60s"]);
    assert_eq!(queued, Some(0), "{}", pod.said());
}

#[test]
fn pods_before_and_after_a_rotation_stand_in_one_queue_and_none_is_restarted() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    provide(&ensemble);
    let [a, b, c] = ["ns-shop.a", "ns-shop.b", "ns-shop.c"];
    let first = pod(&ensemble, "first", &GENERATIONS[..1]);
    let token = first.wait_until_it_runs(0);

    // Its file stays as it was, like that of a pod whose kubelet is slow.
    let now = [GENERATIONS[1], GENERATIONS[0]];
    rotate(&ensemble, &now, &[]);
    let second = pod(&ensemble, "second", &now);
    is_queued(&second);
    wait_for_users(&ensemble, &[&[a], &[a, b]]);
    assert_eq!(first.lockkeeper(&["release"]), Some(0));
    let token = second.wait_until_it_runs(token);
    // The first pod is behind it, and can read the holder's data.
    is_queued(&first);
    assert_eq!(second.lockkeeper(&["release"]), Some(0));
    let token = first.wait_until_it_runs(token);
    is_queued(&second);

    // Then the kubelet writes the file, and the keeper opens its contender to the new identity, without a
    // reconnection.
    write_auth(&first, &now);
    wait_for_users(&ensemble, &[&[a, b], &[a, b]]);

    // No other identity got rights.
    let path = client(&ensemble, OPERATOR, async |client| {
        let names = client.list_children(ROOT).await.unwrap();
        format!("{ROOT}/{}", names[0])
    });
    let answers = client(&ensemble, STRANGER, async |client| {
        [
            client.list_children(ROOT).await.map(drop),
            client.get_data(&path).await.map(drop),
            client.set_data(&path, b"", None).await.map(drop),
            client.delete(&path, None).await,
        ]
    });
    assert_eq!(answers, [(); 4].map(|()| Err(Error::NoAuth)));

    // So the next rotation leaves no pod behind, although the first identity is not valid any more.
    let now = [GENERATIONS[2], GENERATIONS[1]];
    rotate(&ensemble, &now, &[&first, &second]);
    let third = pod(&ensemble, "third", &now);
    is_queued(&third);
    wait_for_users(&ensemble, &[&[a, b, c], &[a, b, c], &[b, c]]);
    // This holds over a new connection as well.
    for server in 0..ensemble.len() {
        ensemble.restart(server).unwrap();
        ensemble.wait_for_quorum().unwrap();
    }
    assert_eq!(first.records().last().unwrap().token, token, "{}", first.said());
    assert_eq!(first.lockkeeper(&["release"]), Some(0), "{}", first.said());
    let token = second.wait_until_it_runs(token);
    assert_eq!(second.lockkeeper(&["release"]), Some(0));
    third.wait_until_it_runs(token);
}
