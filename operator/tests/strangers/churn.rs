//! A server that tells of nodes that come and go faster than the operator reads them.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::nodes::Tree;
use lockkeeper_operator::zookeeper::paths::Layout;
use lockkeeper_operator::zookeeper::queues::Mirror;
use lockkeeper_operator::zookeeper::queues::picture::Excess;
use tokio::time::timeout;

use crate::hostile::{CHURNED, HONEST, Hostile, Kind, PAIRS_TOLD};

/// Generous: the machine may have other work to do.
const BOUND: Duration = Duration::from_secs(120);

#[tokio::test(flavor = "multi_thread")]
async fn what_came_and_went_is_not_read_and_its_lock_is_not_followed_while_another_namespace_is_at_once() {
    let server = Hostile::start(Kind::Churns).await;
    let connect = server.address.to_string().parse().unwrap();
    let zookeeper = ZooKeeper::new(connect, Duration::from_secs(20));
    let identity = Identity::parse("digest:operator:secret").unwrap();
    let tree = Tree::new(Layout::new("/lockkeeper"), identity);
    let (mirror, task) = Mirror::new(zookeeper, tree, Arc::default());
    let [churned, honest] = [CHURNED, HONEST].map(|(namespace, name)| LockKey::new(namespace, name));
    let seen = async {
        while mirror.queue(&honest).contenders().len() == 0 {
            mirror.changes().await;
        }
    };
    tokio::select! {
        () = task.run() => unreachable!("it runs for ever"),
        seen = timeout(BOUND, seen) => {
            assert!(seen.is_ok(), "the contender of the other namespace is not seen: {:?}", mirror.link());
        }
    }
    println!("{} of {PAIRS_TOLD} were read", server.asked());
    assert!(server.asked() < PAIRS_TOLD / 10, "{}", server.asked());
    assert_eq!(mirror.queue(&churned).excess(), Some(&Excess::Changes));
}
