//! Servers that the tests share, and the parts of the operator on hosts of their own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::zookeeper::nodes::Tree;
use lockkeeper_operator::zookeeper::paths::Layout;
use lockkeeper_operator::zookeeper::queues::{Link, Mirror};
use lockkeeper_testbed::ensemble::block_on;
pub use lockkeeper_testbed::ensemble::shared as ensemble;
pub use lockkeeper_testbed::eventually::BOUND;
use lockkeeper_testbed::{Ensemble, Host};

/// The timeout of all sessions: long enough for the pings of a slow machine.
pub const SESSION: Duration = Duration::from_secs(15);

/// The identity of the operator in all tests.
pub fn operator() -> Identity {
    Identity::parse("digest:operator:secret").unwrap()
}

/// The settings to reach the ensemble with an identity.
pub fn zookeeper(ensemble: &Ensemble, identity: Option<&Identity>) -> ZooKeeper {
    let connect = ensemble.connect_string().parse().unwrap();
    let credentials = identity.map_or(Credentials::Anonymous, |identity| {
        Credentials::Digest(identity.digest_auth())
    });
    ZooKeeper::new(connect, SESSION).with_credentials(credentials)
}

/// A tree for one test.
pub fn tree(root: &str) -> Tree {
    Tree::new(Layout::new(root), operator())
}

/// Runs `work` with a connection, on the harness's own host.
pub fn connected<T: Send, F: Future<Output = T>>(
    ensemble: &Ensemble,
    identity: Option<&Identity>,
    work: impl FnOnce(Onlooker) -> F + Send,
) -> T {
    let zookeeper = zookeeper(ensemble, identity);
    block_on(ensemble.observer(), || async move {
        work(zookeeper.onlooker(0, BOUND).await.unwrap()).await
    })
    .unwrap()
}

/// Runs `work` with a mirror of `root` on a host of its own.
pub fn mirrored<T: Send, F: Future<Output = T>>(
    ensemble: &Ensemble,
    host: &Host,
    root: &str,
    work: impl FnOnce(Mirror) -> F + Send,
) -> T {
    let (zookeeper, tree) = (zookeeper(ensemble, Some(&operator())), tree(root));
    block_on(host, || async move {
        let (mirror, task) = Mirror::new(zookeeper, tree, Arc::default());
        tokio::select! {
            () = task.run() => unreachable!("it runs for ever"),
            result = work(mirror) => result,
        }
    })
    .unwrap()
}

pub async fn wait_for_link(mirror: &Mirror, wanted: impl Fn(&Link) -> bool) {
    let mut link = mirror.watch_link();
    tokio::time::timeout(BOUND, link.wait_for(wanted))
        .await
        .unwrap_or_else(|_| panic!("not in time: {:?}", mirror.link()))
        .expect("the task runs");
}

pub async fn wait_for_picture(mirror: &Mirror, mut wanted: impl FnMut(&Mirror) -> bool) {
    let changed = async {
        while !wanted(mirror) {
            mirror.changes().await;
        }
    };
    tokio::time::timeout(BOUND, changed).await.expect("in time");
}
