//! A tenant that makes and deletes nodes below a lock root of its own, as fast as the servers allow, and
//! leaves none behind.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use serde_json::Value;
use tokio::time::{Instant, timeout};
use zookeeper_client::{Acls, CreateMode};

use super::limited::{BOUND, Limited};

/// Nodes that are made and deleted in one transaction: the server of a test keeps 500 of these in little memory.
const PAIRS: u64 = 25;

/// Transactions under way.
const AT_ONCE: u64 = 16;

/// Events after which memory is checked. If something were kept of each, they would take some 35 MiB.
const EVENTS: u64 = 100_000;

/// Length of the names, in bytes.
const NAME: usize = 200;

/// The most additional memory of the operator, in KiB.
const MORE: u64 = 16 << 10;

/// Much longer than a second, which a status may take, and much shorter than reading that many nodes takes.
const IN_TIME: Duration = Duration::from_secs(20);

async fn connect(zookeeper: &ZooKeeper) -> Onlooker {
    zookeeper.onlooker(0, BOUND).await.unwrap()
}

/// Makes and deletes nodes until it is stopped, and counts the events.
async fn churn(zookeeper: &ZooKeeper, root: &str, events: &AtomicU64, stop: &AtomicBool) {
    let mut connection = connect(zookeeper).await;
    let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
    while !stop.load(Ordering::Relaxed) {
        let transactions = (0..AT_ONCE).map(|at| {
            let mut writer = connection.new_multi_writer();
            for pair in 0..PAIRS {
                // A new name each time.
                let name = format!("{:x}-{at}-{pair}", events.load(Ordering::Relaxed));
                let path = format!("{root}/{name:x>NAME$}");
                writer.add_create(&path, b"", &options).unwrap();
                writer.add_delete(&path, None).unwrap();
            }
            async move { writer.commit().await }
        });
        match futures_util::future::try_join_all(transactions).await {
            Ok(_) => drop(events.fetch_add(AT_ONCE * 2 * PAIRS, Ordering::Relaxed)),
            // The server is overloaded.
            Err(error) => {
                println!("Connecting again: {error}");
                connection = connect(zookeeper).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_come_and_go_as_fast_as_the_servers_can_cost_no_memory_and_delay_nobody_elses_status() {
    let mut limited = Limited::start(&[]).await;
    for name in ["shop/churned", "bank/honest"] {
        limited.lock(name, None);
        limited.wait_until_ready(name).await;
    }
    let credentials = Credentials::Digest("operator:password".to_owned());
    let connect_string = limited.ensemble.connect_string().parse().unwrap();
    let zookeeper = ZooKeeper::new(connect_string, Duration::from_secs(20)).with_credentials(credentials);
    let (events, stop) = (AtomicU64::default(), AtomicBool::default());
    let before = limited.peaks[0].load(Ordering::Relaxed);
    let started = Instant::now();
    let test = async {
        while events.load(Ordering::Relaxed) < EVENTS {
            let ended = limited.has_ended();
            assert_eq!(ended, None, "after {events:?} events");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("{EVENTS} events took {:?}", started.elapsed());
        let path = "/lockkeeper/locks/bank/honest/_c_6f1dcafe-0000-4000-8000-000000000001-lock-";
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        // Only now, so that no idle session has to be kept alive meanwhile.
        let honest = connect(&zookeeper).await;
        let asked = Instant::now();
        honest.create(path, b"", &options).await.unwrap();
        let has_holder = |lock: &Value| lock["status"]["holders"][0]["contender"].is_string();
        let seen = limited.wait_for("bank/honest", "has a holder", has_holder);
        timeout(IN_TIME, seen).await.expect("its status in time");
        println!(
            "the other namespace's status followed after {:?}",
            asked.elapsed()
        );
        stop.store(true, Ordering::Relaxed);
    };
    let root = "/lockkeeper/locks/shop/churned";
    tokio::join!(churn(&zookeeper, root, &events, &stop), test);
    let after = limited.peaks[0].load(Ordering::Relaxed);
    println!("most memory: {before} KiB before, {after} KiB after {events:?} events");
    assert!(after < before + MORE, "{after} KiB");
    assert_eq!(limited.has_ended(), None, "the same process");
}
