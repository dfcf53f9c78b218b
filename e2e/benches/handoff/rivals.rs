//! The contenders in the queue: ours, and `zookeeper-client`'s own lock.

use std::time::Duration;

use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_lock::{BootClock, Lock, LockOptions, Timing};
use tokio::task::JoinSet;
use zookeeper_client as zk;

use super::rounds::{HOLD, Rounds};

const SESSION_TIMEOUT: Duration = Duration::from_secs(15);

/// Contenders through `lockkeeper_lock`.
pub async fn lockkeeper(connect: &str, root: &str, contenders: usize, samples: usize) -> Vec<Duration> {
    let rounds = Rounds::new(contenders, samples);
    let mut tasks = JoinSet::new();
    for _ in 0..contenders {
        let ensemble = ZooKeeper::new(connect.parse().expect("a list of servers"), SESSION_TIMEOUT);
        let lock = Lock::new(
            ensemble,
            BootClock,
            LockOptions::new(root, Timing::new(SESSION_TIMEOUT)),
        );
        let rounds = rounds.clone();
        tasks.spawn(async move {
            loop {
                lock.acquire().await.expect("the lock");
                rounds.acquired();
                tokio::time::sleep(HOLD).await;
                rounds.releasing();
                lock.release().await.expect("a release");
            }
        });
    }
    finish(rounds, tasks).await
}

/// Contenders through `zookeeper_client::Client::lock`.
pub async fn zookeeper_client(connect: &str, root: &str, contenders: usize, samples: usize) -> Vec<Duration> {
    let rounds = Rounds::new(contenders, samples);
    let mut tasks = JoinSet::new();
    for _ in 0..contenders {
        let client = zk::Client::connector()
            .with_session_timeout(SESSION_TIMEOUT)
            .connect(connect)
            .await
            .expect("a connection");
        let ancestors = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
        client.mkdir(root, &ancestors).await.expect("the lock's root");
        let (root, rounds) = (root.to_owned(), rounds.clone());
        tasks.spawn(async move {
            loop {
                let prefix = zk::LockPrefix::new_curator(&root, "lock-").expect("a prefix");
                let lock = client
                    .lock(prefix, b"", zk::Acls::anyone_all())
                    .await
                    .expect("the lock");
                rounds.acquired();
                tokio::time::sleep(HOLD).await;
                rounds.releasing();
                lock.delete(lock.lock_path(), None).await.expect("a release");
                // It is deleted; its drop would only try again.
                std::mem::forget(lock);
            }
        });
    }
    finish(rounds, tasks).await
}

async fn finish(rounds: Rounds, mut tasks: JoinSet<()>) -> Vec<Duration> {
    let samples = tokio::select! {
        samples = rounds.samples() => samples,
        Some(ended) = tasks.join_next() => panic!("a contender gave up: {ended:?}"),
    };
    tasks.shutdown().await;
    samples
}
