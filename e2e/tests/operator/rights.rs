//! The rights to nodes, on real servers.

use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Control, YieldRequest};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::nodes::{Removal, Repairs};
use zookeeper_client::{Acl, Acls, CreateMode, Error, Permission};

use crate::harness::{BOUND, connected, ensemble, operator, tree, zookeeper};

/// All requests that a pod may try with a lock, and the answers.
async fn attempts(connection: &Onlooker, root: &str, control: &str, own: &[Acl]) -> Vec<Result<(), Error>> {
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::new(own));
    let persistent = CreateMode::Persistent.with_acls(Acls::new(own));
    vec![
        connection.list_children(root).await.map(drop),
        connection
            .create(&format!("{root}/_c_x-lock-"), b"", &ephemeral)
            .await
            .map(drop),
        connection.get_data(control).await.map(drop),
        connection.set_data(control, b"{}", None).await.map(drop),
        // Requests that not even the namespace itself may make:
        connection.set_data(root, b"", None).await.map(drop),
        connection
            .create(&format!("{control}/x"), b"", &persistent)
            .await
            .map(drop),
        connection.set_acl(root, own, None).await.map(drop),
        connection.set_acl(control, own, None).await.map(drop),
        connection.delete(control, None).await,
        connection.delete(root, None).await,
    ]
}

/// How many of the attempts the namespace has the right to.
const OWN: usize = 4;

#[test]
fn a_namespace_can_use_its_own_locks_and_nothing_else_and_the_world_nothing_at_all() {
    let ensemble = ensemble();
    let tree = tree("/rights/root");
    let keys = [LockKey::new("a", "report"), LockKey::new("b", "report")];
    let identities = [Identity::generate("a"), Identity::generate("b")];
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        for (key, identity) in keys.iter().zip(&identities) {
            let identities = std::slice::from_ref(identity);
            tree.ensure_lock(&connection, key, identities).await.unwrap();
        }
    });
    for (who, identity) in [Some(&identities[0]), Some(&identities[1]), None]
        .into_iter()
        .enumerate()
    {
        for (whose, key) in keys.iter().enumerate() {
            let (root, control) = (tree.layout().lock(key), tree.layout().control(key));
            let own = identity.map_or_else(
                || vec![Acl::new_const(Permission::ALL, "world", "anyone")],
                |identity| vec![Acl::new(Permission::ALL, identity.auth_id())],
            );
            let answers = connected(&ensemble, identity, async |connection| {
                attempts(&connection, &root, &control, &own).await
            });
            let allowed = if who == whose { OWN } else { 0 };
            for (attempt, answer) in answers.iter().enumerate() {
                if attempt < allowed {
                    assert_eq!(answer, &Ok(()), "{identity:?}, attempt {attempt} at {key}");
                } else {
                    assert_eq!(
                        answer,
                        &Err(Error::NoAuth),
                        "{identity:?}, attempt {attempt} at {key}"
                    );
                }
            }
        }
        // It cannot read the nodes above either.
        for path in [
            "/rights",
            "/rights/root",
            "/rights/root/locks",
            "/rights/root/locks/a",
        ] {
            let listed = connected(&ensemble, identity, async |connection| {
                connection.list_children(path).await.map(drop)
            });
            assert_eq!(listed, Err(Error::NoAuth), "{identity:?} {path}");
        }
    }
}

#[test]
fn what_was_deleted_or_opened_by_hand_is_repaired_and_what_is_right_is_left_alone() {
    let ensemble = ensemble();
    let tree = tree("/repaired");
    let key = LockKey::new("a", "report");
    let (old, new) = (Identity::generate("a"), Identity::generate("a"));
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        let ensure = async |identities: &[Identity]| {
            let repairs = tree.ensure_lock(&connection, &key, identities).await;
            let Repairs { made, rights } = repairs.unwrap();
            (made, rights)
        };
        let old = [old.clone()];
        assert_eq!(ensure(&old).await, (2, 0));
        assert_eq!(ensure(&old).await, (0, 0), "nothing is written twice");

        connection.delete(&tree.layout().lock(&key), None).await.unwrap();
        assert_eq!(ensure(&old).await, (1, 0));
        let world = [Acl::new_const(Permission::ALL, "world", "anyone")];
        connection
            .set_acl(&tree.layout().lock(&key), &world, None)
            .await
            .unwrap();
        assert_eq!(ensure(&old).await, (0, 1));
        let both = [new.clone(), old[0].clone()];
        assert_eq!(ensure(&both).await, (0, 2), "a rotated identity");

        assert_eq!(tree.remove_lock(&connection, &key).await.unwrap(), Removal::Done);
        let above = tree.layout().locks();
        assert_eq!(connection.list_children(&above).await.unwrap(), [""; 0]);
        assert_eq!(ensure(&old).await, (2, 0));
    });
    // The old identity's pods and those with the new one, during a rotation.
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure_lock(&connection, &key, &[new.clone(), old.clone()])
            .await
            .unwrap();
    });
    for identity in [&old, &new] {
        let listed = connected(&ensemble, Some(identity), async |connection| {
            connection.list_children(&tree.layout().lock(&key)).await
        });
        assert_eq!(listed, Ok(vec![]));
    }
}

#[test]
fn a_lock_in_use_is_not_removed() {
    let ensemble = ensemble();
    let tree = tree("/in-use");
    let key = LockKey::new("a", "report");
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        tree.ensure_lock(&connection, &key, &[]).await.unwrap();
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let contender = format!("{}/_c_x-lock-0000000001", tree.layout().lock(&key));
        connection.create(&contender, b"", &options).await.unwrap();
        assert_eq!(tree.remove_lock(&connection, &key).await.unwrap(), Removal::InUse);
        let kept = connection.check_stat(&tree.layout().control(&key)).await.unwrap();
        assert!(kept.is_some());
    });
}

#[test]
fn what_is_nobodys_place_in_the_queue_goes_with_its_lock_and_not_while_somebody_stands_there() {
    let ensemble = ensemble();
    let tree = tree("/littered");
    let key = LockKey::new("a", "report");
    let pod = Identity::generate("a");
    let (root, control) = (tree.layout().lock(&key), tree.layout().control(&key));
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        let identities = std::slice::from_ref(&pod);
        tree.ensure_lock(&connection, &key, identities).await.unwrap();
        let pods = zookeeper(&ensemble, Some(&pod)).onlooker(0, BOUND).await.unwrap();
        let make = async |name: &str, mode: CreateMode| {
            let own = [
                Acl::new(Permission::ALL, pod.auth_id()),
                Acl::new(Permission::READ, operator().auth_id()),
            ];
            let path = format!("{root}/{name}");
            let options = mode.with_acls(Acls::new(&own));
            pods.create(&path, b"", &options).await.unwrap();
            path
        };
        // More than one batch of removals.
        let litter = async || {
            for at in 0..300 {
                make(&format!("litter-{at}x"), CreateMode::Persistent).await;
            }
        };
        let remove = async || {
            let removed = tree.remove_lock(&connection, &key).await.unwrap();
            let is_there = connection.check_stat(&root).await.unwrap().is_some();
            (removed, is_there)
        };
        litter().await;
        for who in ["_c_x-lock-0000000001", "of-another-kind"] {
            let path = make(who, CreateMode::Ephemeral).await;
            // The removal may begin with litter.
            for _ in 0..2 {
                let (removed, is_there) = remove().await;
                assert!(is_there && removed != Removal::Done, "{who}: {removed:?}");
            }
            assert_eq!(remove().await, (Removal::InUse, true), "{who}");
            pods.delete(&path, None).await.unwrap();
        }
        litter().await;
        assert_eq!(remove().await, (Removal::Goes, true));
        assert_eq!(remove().await, (Removal::Done, false));
        assert_eq!(connection.check_stat(&control).await.unwrap(), None);
    });
}

#[test]
fn a_child_that_cannot_be_removed_keeps_the_nodes_and_no_object_and_is_named() {
    let ensemble = ensemble();
    let tree = tree("/kept");
    let key = LockKey::new("a", "report");
    let pod = Identity::generate("a");
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        let identities = std::slice::from_ref(&pod);
        tree.ensure_lock(&connection, &key, identities).await.unwrap();
        let root = tree.layout().lock(&key);
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let pods = zookeeper(&ensemble, Some(&pod)).onlooker(0, BOUND).await.unwrap();
        let private = format!("{root}/private");
        let own = [Acl::new(Permission::ALL, pod.auth_id())];
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::new(&own));
        pods.create(&private, b"", &ephemeral).await.unwrap();
        // A child that the operator may not read may belong to a session.
        let Removal::Left(what) = tree.remove_lock(&connection, &key).await.unwrap() else {
            panic!("it is not known what it is")
        };
        assert_eq!(what, format!("{private} may not be read by the identity in use"));
        assert!(connection.check_stat(&root).await.unwrap().is_some());
        pods.delete(&private, None).await.unwrap();
        for path in ["nested", "nested/below", "litter"] {
            let path = format!("{root}/{path}");
            connection.create(&path, b"", &options).await.unwrap();
        }
        let Removal::Left(what) = tree.remove_lock(&connection, &key).await.unwrap() else {
            panic!("it cannot be removed")
        };
        assert_eq!(what, format!("{root}/nested has children of its own"));
        assert!(connection.check_stat(&root).await.unwrap().is_some());
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let contender = format!("{root}/_c_x-lock-0000000001");
        connection.create(&contender, b"", &ephemeral).await.unwrap();
        assert_eq!(tree.remove_lock(&connection, &key).await.unwrap(), Removal::InUse);
    });
}

#[test]
fn a_yield_request_keeps_what_else_the_control_node_holds_and_is_written_once() {
    let ensemble = ensemble();
    let tree = tree("/yield");
    let key = LockKey::new("a", "report");
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        tree.ensure_lock(&connection, &key, &[]).await.unwrap();
        let path = tree.layout().control(&key);
        let before = br#"{"v":1,"lastRelease":[{"contender":"c1","token":5}],"note":"x"}"#;
        connection.set_data(&path, before, None).await.unwrap();
        let request = YieldRequest {
            id: "7".into(),
            contenders: vec!["c2".into()],
        };
        assert!(tree.request_yield(&connection, &key, &request).await.unwrap());
        let (data, stat) = connection.get_data(&path).await.unwrap();
        let control = Control::parse(&data);
        assert!(control.asks("c2") && control.released("c1"));
        assert_eq!(control.other.get("note"), Some(&"x".into()));
        assert!(!tree.request_yield(&connection, &key, &request).await.unwrap());
        let (_, again) = connection.get_data(&path).await.unwrap();
        assert_eq!(stat.version, again.version);
    });
}
