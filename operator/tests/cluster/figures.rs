//! How long it takes with many locks, and how much memory. Printed; run by name with `--ignored`.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::Api;
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::BootInstant;
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_operator::layout::{Layout, LockKey};
use lockkeeper_operator::tree::Tree;
use zookeeper_client::{Acls, CreateMode};

use crate::contender::Contender;
use crate::world::{ask, eventually, holders, operator_identity, world, world_alone};

/// Requests under way while the stage is set.
const BREADTH: usize = 64;

fn count(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a whole number"))
}

/// Resident memory of a process, now and at most, in MiB.
fn memory(pid: i32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

async fn writes(port: u16) -> u64 {
    let metrics = ask(port, "/metrics").await.unwrap();
    metrics
        .lines()
        .filter(|line| line.starts_with("lockkeeper_operator_api_writes_total"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark of minutes: LOCKS=10000 CONTENDERS=3"]
async fn many_locks_and_an_operator_that_is_started_cold() {
    let Some(world) = world_alone().await else { return };
    let (locks, contenders) = (count("LOCKS", 10_000), count("CONTENDERS", 3));
    let space = world.namespace("figures").await;
    drop(world.take_operator());
    let connect = world.ensemble.connect_string().parse().unwrap();
    let connection: Onlooker = ZooKeeper::new(connect, Duration::from_secs(20))
        .with_credentials(Credentials::Digest(operator_identity().digest_auth()))
        .onlooker(0, crate::world::BOUND)
        .await
        .unwrap();
    let tree = Tree::new(Layout::new("/lockkeeper"), operator_identity());
    let keys: Vec<_> = (0..locks)
        .map(|at| LockKey::new(space.name.as_str(), format!("lock-{at:05}")))
        .collect();
    let made: Vec<Vec<String>> = stream::iter(&keys)
        .map(async |key| {
            let mut made = Vec::new();
            tree.ensure_lock(&connection, key, &[]).await.unwrap();
            for at in 0..contenders {
                let state = if at == 0 { "held" } else { "waiting" };
                let pod = format!("{}-{at}", key.name);
                let data = format!(
                    r#"{{"v":1,"state":"{state}","pod":{{"namespace":"{}","name":"{pod}","uid":"{pod}","node":"n1"}},
                    "since":"2026-01-01T00:00:00Z","stopBudgetMillis":3000}}"#,
                    key.namespace
                );
                let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
                let path = format!("{}/_c_{pod}-lock-", tree.layout().lock(key));
                let (_, sequence) = connection.create(&path, data.as_bytes(), &options).await.unwrap();
                made.push(format!("{path}{sequence}"));
            }
            made
        })
        .buffer_unordered(BREADTH)
        .collect()
        .await;
    let api: Api<DistributedLock> = space.api();
    stream::iter(&keys)
        .map(async |key| {
            let lock = DistributedLock::new(&key.name, DistributedLockSpec::default());
            api.create(&PostParams::default(), &lock).await.unwrap();
        })
        .buffer_unordered(BREADTH)
        .collect::<Vec<()>>()
        .await;

    let started = BootInstant::now();
    let operator = world.operator("operator-figures").await;
    let right = async || {
        let mut right = 0;
        let mut page = ListParams::default().limit(1_000);
        loop {
            let list = api.list(&page).await.unwrap();
            right += list
                .items
                .iter()
                .filter(|lock| {
                    let waiting = lock.status.as_ref().and_then(|status| status.waiting);
                    holders(lock) == [format!("{}-0", lock.name_any())]
                        && waiting == Some(contenders as i32 - 1)
                })
                .count();
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return right,
            }
        }
    };
    let end = started + Duration::from_secs(300);
    // To list ten thousand objects again and again would be most of the API server's work.
    while writes(operator.admin).await < locks as u64 {
        assert!(BootInstant::now() < end, "{}", operator.log());
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    println!("all written after {:.1?}", BootInstant::now() - started);
    loop {
        let right = right().await;
        let took = BootInstant::now() - started;
        println!("{right} of {locks} right after {took:.1?}");
        if right == locks {
            break;
        }
        assert!(BootInstant::now() < end, "{}", operator.log());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let pid = operator.process.pid().as_raw_nonzero().get();
    // The finalizers, which come later where nodes are there already.
    while writes(operator.admin).await < 2 * locks as u64 {
        assert!(BootInstant::now() < end, "{}", operator.log());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let before = writes(operator.admin).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let after = writes(operator.admin).await;
    println!("writes in 20 s without a change: {}", after - before);
    println!("memory (now, at most) in MiB: {:?}", memory(pid));

    // So that the operator lets the locks go; with the namespace they go at the pace of its controller.
    stream::iter(made.concat())
        .map(async |path: String| connection.delete(&path, None).await.unwrap())
        .buffer_unordered(BREADTH)
        .collect::<Vec<()>>()
        .await;
    let namespaces: Api<Namespace> = Api::all(space.client.clone());
    namespaces
        .delete(&space.name, &DeleteParams::default())
        .await
        .unwrap();
    let end = BootInstant::now() + Duration::from_secs(300);
    while !api
        .list(&ListParams::default().limit(1))
        .await
        .unwrap()
        .items
        .is_empty()
    {
        assert!(BootInstant::now() < end, "{}", operator.log());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    // For the tests that come after.
    world.put_operator(operator);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a benchmark of a minute: HANDOFFS=30"]
async fn one_handoff_until_status_and_labels_are_right() {
    let Some(world) = world().await else { return };
    let space = world.namespace("handoffs").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let mut pods = HashMap::new();
    for name in ["a", "b"] {
        pods.insert(name, space.pod(name, "report").await);
    }
    let mut holder = Contender::join(&world, &space, "report", &pods["a"]).await;
    space
        .wait_for_lock("report", "a holds", |lock| holders(lock) == ["a"])
        .await;
    let mut times = Vec::new();
    for round in 0..count("HANDOFFS", 30) {
        let (old, new) = if round % 2 == 0 { ("a", "b") } else { ("b", "a") };
        let heir = Contender::join(&world, &space, "report", &pods[new]).await;
        space
            .wait_for_lock("report", "the heir waits", |lock| {
                lock.status.as_ref().and_then(|status| status.waiting) == Some(1)
            })
            .await;
        // Its lease is valid by then, and the second between two writes of the status is over.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let started = BootInstant::now();
        holder.leave().await;
        let api = space.api::<DistributedLock>();
        let labels = space.api::<Pod>();
        eventually("status and labels are right", async || {
            let lock = api.get("report").await.unwrap();
            let role = async |name: &str| {
                let pod = labels.get(name).await.unwrap();
                pod.labels()
                    .get("lockkeeper.io/role")
                    .cloned()
                    .unwrap_or_default()
            };
            (holders(&lock) == [new] && role(new).await == "active" && role(old).await == "standby")
                .then_some(())
        })
        .await;
        times.push(BootInstant::now() - started);
        holder = heir;
    }
    times.sort();
    println!(
        "{} handoffs: p50 {:.0?}, p95 {:.0?}, at most {:.0?}",
        times.len(),
        times[times.len() / 2],
        times[times.len() * 95 / 100],
        times[times.len() - 1]
    );
    holder.leave().await;
    space.leave().await;
}
