//! The removal of one contender, on real servers.

use lockkeeper_lock::FencingToken;
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use zookeeper_client::{Acls, CreateMode};

use crate::harness::{connected, ensemble, operator, tree};

#[test]
fn a_contender_is_removed_only_if_it_is_the_one_that_was_looked_at() {
    let ensemble = ensemble();
    let (tree, key) = (tree("/dead/root"), LockKey::new("shop", "report"));
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        let identity = Identity::generate("shop");
        tree.ensure_lock(&connection, &key, &[identity]).await.unwrap();
        let ephemeral = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let path = |name: &str| format!("{}/{name}", tree.layout().lock(&key));
        let [dead, next] = ["_c_dead-lock-0000000000", "_c_next-lock-0000000001"];
        let mut tokens = Vec::new();
        for name in [dead, next] {
            let (stat, _) = connection.create(&path(name), b"{}", &ephemeral).await.unwrap();
            tokens.push(FencingToken(stat.czxid));
        }
        let remove = |name, token| tree.remove_contender(&connection, &key, name, token);
        assert!(
            !remove(dead, tokens[1]).await.unwrap(),
            "another one of this name"
        );
        assert!(connection.check_stat(&path(dead)).await.unwrap().is_some());
        assert!(remove(dead, tokens[0]).await.unwrap());
        assert_eq!(connection.check_stat(&path(dead)).await.unwrap(), None);
        assert!(!remove(dead, tokens[0]).await.unwrap(), "it is gone");
        assert!(connection.check_stat(&path(next)).await.unwrap().is_some());
    });
}
