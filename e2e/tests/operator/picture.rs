//! The operator's picture matches the nodes of the ensemble.

use lockkeeper_lock::Mode;
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::queues::{Link, Mirror};
use zookeeper_client::{Acls, CreateMode};

use crate::harness::{connected, ensemble, mirrored, operator, tree, wait_for_link, wait_for_picture};

const WAITING: &[u8] = br#"{"v":1,"state":"waiting"}"#;
const HELD: &[u8] = br#"{"v":1,"state":"held"}"#;

async fn contender(connection: &Onlooker, root: &str, data: &[u8]) -> String {
    let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
    let (_, sequence) = connection
        .create(&format!("{root}/_c_x-lock-"), data, &options)
        .await
        .unwrap();
    format!("{root}/_c_x-lock-{sequence}")
}

fn shown(mirror: &Mirror, key: &LockKey) -> Vec<(String, bool)> {
    let participants = mirror.queue(key).participants(Mode::Exclusive);
    let said = participants
        .into_iter()
        .map(|one| (one.data.state.clone(), one.is_holder));
    said.collect()
}

fn expected(states: &[&str]) -> Vec<(String, bool)> {
    let states = states.iter().enumerate();
    states
        .map(|(index, state)| ((*state).to_owned(), index == 0))
        .collect()
}

#[test]
fn the_picture_follows_contenders_that_come_change_and_go() {
    let ensemble = ensemble();
    let key = LockKey::new("shop", "report");
    let tree = tree("/follows/deep");
    let root = tree.layout().lock(&key);
    let host = ensemble.client("mirror-follows").unwrap();
    let first = connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        tree.ensure_lock(&connection, &key, &[]).await.unwrap();
        contender(&connection, &root, HELD).await
    });
    mirrored(&ensemble, &host, "/follows/deep", async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        assert_eq!(shown(&mirror, &key), expected(&["held"]), "what was there before");
        let Link::Up(connection) = mirror.link() else {
            panic!("it is connected")
        };
        let second = contender(&connection, &root, WAITING).await;
        contender(&connection, &root, WAITING).await;
        wait_for_picture(&mirror, |mirror| {
            shown(mirror, &key) == expected(&["held", "waiting", "waiting"])
        })
        .await;
        connection.delete(&first, None).await.unwrap();
        connection.set_data(&second, HELD, None).await.unwrap();
        wait_for_picture(&mirror, |mirror| {
            shown(mirror, &key) == expected(&["held", "waiting"])
        })
        .await;

        let other = LockKey::new("bank", "report");
        tree.ensure_lock(&connection, &other, &[]).await.unwrap();
        contender(&connection, &tree.layout().lock(&other), b"10.0.0.7").await;
        wait_for_picture(&mirror, |mirror| shown(mirror, &other) == expected(&[""])).await;
        assert!(mirror.queue(&other).exists);
    });
}

#[test]
fn what_happened_while_the_operator_was_cut_off_is_in_the_picture_afterwards() {
    let ensemble = ensemble();
    let key = LockKey::new("shop", "report");
    let tree = tree("/cut-off");
    let root = tree.layout().lock(&key);
    let host = ensemble.client("mirror-cut-off").unwrap();
    let first = connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        tree.ensure_lock(&connection, &key, &[]).await.unwrap();
        contender(&connection, &root, HELD).await
    });
    let servers = || (0..ensemble.len()).map(|index| ensemble.server(index));
    mirrored(&ensemble, &host, "/cut-off", async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        for server in servers() {
            ensemble.cut(&host, server).expect("namespaces are allowed");
        }
        wait_for_link(&mirror, |link| matches!(link, Link::Down(_))).await;
        assert_eq!(
            shown(&mirror, &key),
            expected(&["held"]),
            "what was known is kept, for it is the best there is"
        );
        connected(&ensemble, Some(&operator()), async |connection| {
            connection.delete(&first, None).await.unwrap();
            contender(&connection, &root, HELD).await;
            contender(&connection, &root, WAITING).await;
        });
        for server in servers() {
            ensemble.heal(&host, server).unwrap();
        }
        mirror.changes().await;
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        assert_eq!(shown(&mirror, &key), expected(&["held", "waiting"]));

        // The watch is set again, too.
        let Link::Up(connection) = mirror.link() else {
            panic!("it is connected")
        };
        contender(&connection, &root, WAITING).await;
        wait_for_picture(&mirror, |mirror| shown(mirror, &key).len() == 3).await;
    });
}

#[test]
fn a_lock_root_that_somebody_deletes_and_makes_again_is_noticed() {
    let ensemble = ensemble();
    let key = LockKey::new("shop", "report");
    let tree = tree("/noticed");
    let host = ensemble.client("mirror-noticed").unwrap();
    mirrored(&ensemble, &host, "/noticed", async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        let Link::Up(connection) = mirror.link() else {
            panic!("it is connected")
        };
        assert!(!mirror.queue(&key).exists);
        for exists in [true, false, true] {
            if exists {
                tree.ensure_lock(&connection, &key, &[]).await.unwrap();
            } else {
                tree.remove_lock(&connection, &key).await.unwrap();
            }
            wait_for_picture(&mirror, |mirror| mirror.queue(&key).exists == exists).await;
        }
    });
}
