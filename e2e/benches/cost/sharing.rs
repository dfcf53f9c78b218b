//! What several locks of one pod cost, and what one session with one renewal for all of them would cost at least.

use std::sync::mpsc;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use lockkeeper_lock::Timing;
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Ensemble, Host};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use zookeeper_client as zk;

use super::calm;
use super::crowd::{SESSION_TIMEOUT, Size};
use super::meter::{Cost, Meter};

/// Locks of one pod.
const LOCKS: [usize; 4] = [1, 2, 4, 8];

/// Prints the cost of `pods` pods for each number of locks, in both ways.
pub fn measure(ensemble: &Ensemble, clients: &Host, pods: usize, hold: Duration) -> anyhow::Result<()> {
    println!(
        "\n## One session for several locks of a pod\n\n\
         {pods} pods, held for {hold:?}, no waiters. Per second, of all pods. \"Own\": each lock has its session, its \
         connection and its renewal, as now. \"Shared\": a bare client sends for each pod one `multi` with a `setData` \
         of each lock, over one session, and does nothing else.\n\n\
         | locks of a pod | | sessions | transactions | kB, clients | kB, servers | CPU, servers | client | others | memory |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    for locks in LOCKS {
        let size = Size {
            locks: pods * locks,
            with_waiters: false,
        };
        let (own, fate) = calm::of(ensemble, clients, size, hold)?;
        let gone = fate.missing + fate.lost;
        anyhow::ensure!(gone == 0, "{gone} of {} locks were not held", size.locks);
        print(locks, "own", pods * locks, &own);
        print(
            locks,
            "shared",
            pods,
            &shared(ensemble, clients, pods, locks, hold)?,
        );
    }
    Ok(())
}

fn print(locks: usize, name: &str, sessions: usize, cost: &Cost) {
    let kilo =
        |bytes: Option<f64>| bytes.map_or_else(|| "-".to_owned(), |bytes| format!("{:.0}", bytes / 1e3));
    println!(
        "| {locks} | {name} | {sessions} | {:.0} | {} | {} | {} |",
        cost.writes,
        kilo(cost.bytes),
        kilo(cost.bytes_between_servers),
        cost.of_processors_and_memory(),
    );
}

/// The cost of one session and one renewal for all locks of a pod.
fn shared(
    ensemble: &Ensemble,
    clients: &Host,
    pods: usize,
    locks: usize,
    hold: Duration,
) -> anyhow::Result<Cost> {
    let connect = ensemble.connect_string();
    let (ready, is_ready) = mpsc::channel();
    let (end, ended) = watch::channel(());
    std::thread::scope(|scope| {
        let renewing = scope.spawn(|| {
            block_on(clients, || async move {
                let pods = (0..pods).map(|pod| Pod::new(&connect, pod, locks));
                let pods = try_join_all(pods).await?;
                let gap = Timing::new(SESSION_TIMEOUT).interval() / u32::try_from(pods.len())?;
                let renewing = (0_u32..)
                    .zip(pods)
                    .map(|(index, pod)| pod.renew(gap * index, ended.clone()));
                ready.send(())?;
                join_all(renewing)
                    .await
                    .into_iter()
                    .collect::<anyhow::Result<()>>()
            })
        });
        let cost = match is_ready.recv() {
            Ok(()) => {
                // One interval, so that each of them renews.
                std::thread::sleep(Timing::new(SESSION_TIMEOUT).interval());
                let meter = Meter::start(ensemble, clients)?;
                std::thread::sleep(hold);
                meter.stop()
            }
            Err(mpsc::RecvError) => Err(anyhow::anyhow!("the sessions were not made")),
        };
        drop(end);
        renewing.join().expect("no panic")??;
        cost
    })
}

/// A session with some contenders.
struct Pod {
    client: zk::Client,
    contenders: Vec<String>,
    data: Vec<u8>,
}

impl Pod {
    /// Paths and data are as long as those of the real contenders.
    async fn new(connect: &str, pod: usize, locks: usize) -> anyhow::Result<Self> {
        let connector = zk::Client::connector().with_session_timeout(SESSION_TIMEOUT);
        let client = connector.connect(connect).await?;
        let mut contenders = Vec::new();
        for lock in 0..locks {
            let root = format!("/lockkeeper/locks/shop/shared-{lock}-{pod:05}");
            let made = client
                .mkdir(
                    &root,
                    &zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all()),
                )
                .await;
            made.or_else(|error| {
                if error == zk::Error::NodeExists {
                    Ok(())
                } else {
                    Err(error)
                }
            })?;
            let contender = format!("{root}/_c_{}-lock-0000000000", uuid::Uuid::new_v4());
            let options = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
            client.create(&contender, b"", &options).await?;
            contenders.push(contender);
        }
        let data = json!({
            "v": 1,
            "state": "held",
            "pod": {
                "namespace": "shop",
                "name": format!("report-5dc966b474-{pod:05}"),
                "uid": uuid::Uuid::new_v4().to_string(),
                "node": "node-1",
            },
            "revision": "5dc966b474",
            "since": "2026-01-01T00:00:00Z",
            "stopBudgetMillis": 3000,
            "leaseMillis": 8500,
        });
        Ok(Self {
            client,
            contenders,
            data: serde_json::to_vec(&data)?,
        })
    }

    /// Renews in the interval of a lock until `ended` is closed; then ends the session.
    async fn renew(self, first: Duration, mut ended: watch::Receiver<()>) -> anyhow::Result<()> {
        let mut ticks = tokio::time::interval(Timing::new(SESSION_TIMEOUT).interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.reset_after(first);
        while tokio::select! {
            _ = ended.changed() => false,
            _ = ticks.tick() => true,
        } {
            let mut renewal = self.client.new_multi_writer();
            for contender in &self.contenders {
                renewal.add_set_data(contender, &self.data, None)?;
            }
            renewal.commit().await?;
        }
        let mut state = self.client.state_watcher();
        // Its drop ends the session.
        drop(self);
        while !state.changed().await.is_terminated() {}
        Ok(())
    }
}
