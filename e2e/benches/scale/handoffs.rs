//! The time from a release in the ensemble until the status and both role labels show it.

use std::time::Duration;

use futures_util::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_lock::{BootClock, Clock};
use lockkeeper_product::beside::Environment;
use lockkeeper_product::beside::conditions::{holders, waiting};

use crate::contender::Contender;

/// Longer than the pause between two writes of one status, and than an heir needs for its lease.
const SETTLE: Duration = Duration::from_secs(3);

/// Prints the distribution of this many handoffs.
pub async fn measure(environment: &Environment, rounds: usize) {
    let space = environment.namespace("handoffs").await;
    let mut holder = Contender::hold(environment, &space).await;
    let pods = [
        space.api::<Pod>().get("a").await.unwrap(),
        space.pod("b", "report").await,
    ];
    let mut times = Vec::new();
    for round in 0..rounds {
        let (old, new) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let heir = Contender::join(environment, &space, "report", &pods[(round + 1) % 2]).await;
        space
            .wait_for_lock("report", "the heir waits", |lock| {
                holders(lock) == [old] && waiting(lock) == [new]
            })
            .await;
        // Watches, as for users and Services; polling would load the API server.
        let mut seen = changes(space.api(), space.api());
        tokio::time::sleep(SETTLE).await;
        let started = BootClock.now();
        holder.leave().await;
        let (mut status, mut active, mut standby) = (false, false, false);
        while !(status && active && standby) {
            match seen.next().await.expect("a watch does not end") {
                Seen::Lock(lock) => status = holders(&lock) == [new],
                Seen::Pod(pod) => {
                    let role = pod.labels().get("lockkeeper.io/role").map(String::as_str);
                    match pod.name_any() {
                        name if name == new => active = role == Some("active"),
                        _ => standby = role == Some("standby"),
                    }
                }
            }
        }
        times.push(BootClock.now() - started);
        holder = heir;
    }
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("From a release in the ensemble until status and both role labels are right, {rounds} times:\n");
    println!("| p50 | p90 | p99 | at most |\n|---|---|---|---|");
    println!(
        "| {:.0?} | {:.0?} | {:.0?} | {:.0?} |\n",
        at(50),
        at(90),
        at(99),
        at(100)
    );
    holder.leave().await;
    space.leave().await;
}

enum Seen {
    Lock(Box<DistributedLock>),
    Pod(Box<Pod>),
}

fn changes(locks: Api<DistributedLock>, pods: Api<Pod>) -> impl Stream<Item = Seen> + Unpin {
    let config = watcher::Config::default;
    let locks = watcher(locks, config()).applied_objects();
    let pods = watcher(pods, config()).applied_objects();
    let locks = locks.map_ok(|lock| Seen::Lock(Box::new(lock)));
    let pods = pods.map_ok(|pod| Seen::Pod(Box::new(pod)));
    Box::pin(futures_util::stream::select(locks, pods).map(|seen| seen.expect("the API server answers")))
}
