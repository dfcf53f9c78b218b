//! Servers that the tests share, and the parts of the operator on hosts of their own.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_e2e::ensemble::block_on;
pub use lockkeeper_e2e::ensemble::shared as ensemble;
use lockkeeper_e2e::{Ensemble, Host};
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::layout::Layout;
use lockkeeper_operator::mirror::{Link, Mirror};
use lockkeeper_operator::tree::Tree;

/// Generous: the machine may have other work to do.
pub const BOUND: Duration = Duration::from_secs(60);

/// Of all sessions: long enough that no machine is too slow for their pings.
pub const SESSION: Duration = Duration::from_secs(15);

/// The identity of the operator in all tests.
pub fn operator() -> Identity {
    Identity::parse("digest:operator:secret").unwrap()
}

/// How to reach the ensemble as somebody.
pub fn zookeeper(ensemble: &Ensemble, identity: Option<&Identity>) -> ZooKeeper {
    let connect = ensemble.connect_string().parse().unwrap();
    let credentials = identity.map_or(Credentials::Anonymous, |identity| {
        Credentials::Digest(identity.digest_auth())
    });
    ZooKeeper::new(connect, SESSION).with_credentials(credentials)
}

/// A tree of a test's own.
pub fn tree(root: &str) -> Tree {
    Tree::new(Layout::new(root), operator())
}

/// Runs `work` with a connection of somebody's, on the harness's own host.
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

/// Waits until the picture is fresh (or no more).
pub async fn wait_for_link(mirror: &Mirror, wanted: impl Fn(&Link) -> bool) {
    let mut link = mirror.watch_link();
    tokio::time::timeout(BOUND, link.wait_for(wanted))
        .await
        .unwrap_or_else(|_| panic!("not in time: {:?}", mirror.link()))
        .expect("the task runs");
}

/// Waits until the picture is as it should be.
pub async fn wait_for_picture(mirror: &Mirror, mut wanted: impl FnMut(&Mirror) -> bool) {
    let changed = async {
        while !wanted(mirror) {
            mirror.changes().await;
        }
    };
    tokio::time::timeout(BOUND, changed).await.expect("in time");
}
