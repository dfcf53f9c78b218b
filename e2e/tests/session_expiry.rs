//! Why this project does not trust reads, pings or the state of a connection: a measurement on real servers
//! of what a client sees when it is cut off together with its server.

use std::time::Duration;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::DeletionWatch;
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Config, Ensemble};
use zookeeper_client::{Acls, Client, CreateMode, SessionState};

const SESSION_TIMEOUT: Duration = Duration::from_secs(8);
/// How long the client tolerates a silent server: the maximum.
const PATIENCE: Duration = Duration::from_millis(4_800);
/// How many ticks of 1 s the follower tolerates a silent leader: some seconds more than the leader tolerates
/// a silent client.
const SYNC_LIMIT: u32 = 14;
/// Six times the expected time.
const BOUND: Duration = Duration::from_secs(90);

#[test]
fn a_client_behind_a_cut_off_follower_reads_its_own_node_for_seconds_after_the_leader_deleted_it() {
    let ensemble = Ensemble::start(Config {
        sync_limit: SYNC_LIMIT,
        ..Config::default()
    })
    .expect("the servers start");
    if let Err(reason) = ensemble.network().can_cut() {
        lockkeeper_skip::skip(reason);
        return;
    }
    let follower = ensemble.wait_for_roles().unwrap().1[0];
    let deletions = DeletionWatch::begin(&ensemble, "/lock").unwrap();
    let host = ensemble.client("client").unwrap();
    let address = ensemble.address(follower).to_string();

    let seen = block_on(&host, || async {
        let connector = Client::connector()
            .with_session_timeout(SESSION_TIMEOUT)
            .with_connection_timeout(PATIENCE);
        let client = connector.connect(&address).await.unwrap();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let (stat, sequence) = client.create("/lock/contender-", b"", &options).await.unwrap();
        let path = format!("/lock/contender-{sequence}");
        let mut states = client.state_watcher();

        let cut = BootInstant::now();
        for other in (0..ensemble.len()).filter(|&other| other != follower) {
            ensemble
                .cut(ensemble.server(follower), ensemble.server(other))
                .unwrap();
        }
        let mut reads = Vec::new();
        let reading = async {
            while let Ok(Some(_)) = client.check_stat(&path).await {
                reads.push(BootInstant::now());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let learning = async {
            let first = states.changed().await;
            (first, BootInstant::now())
        };
        let both = async {
            let mut learning = std::pin::pin!(learning);
            tokio::select! {
                told = &mut learning => told,
                () = reading => learning.await,
            }
        };
        let (state, told) = tokio::time::timeout(BOUND, both)
            .await
            .expect("the client is told at last");
        Seen {
            token: stat.czxid,
            cut,
            reads,
            state,
            told,
        }
    })
    .unwrap();

    let deleted = deletions
        .wait_for_deletion(seen.token, BOUND)
        .expect("the leader deletes the node");
    let since_cut = |at: BootInstant| (at - seen.cut).as_secs_f64();
    let stale: Vec<_> = seen.reads.iter().filter(|&&read| read > deleted).collect();
    println!("after the cut (session timeout {SESSION_TIMEOUT:?}, tick 1 s, syncLimit {SYNC_LIMIT}):");
    println!(
        "{:6.2} s  the leader deletes the node: the next waiter may run",
        since_cut(deleted)
    );
    println!(
        "{:6.2} s  last of {} reads of its own node by the cut-off client, {} of them stale",
        seen.reads.last().map_or(0.0, |&read| since_cut(read)),
        seen.reads.len(),
        stale.len()
    );
    println!(
        "{:6.2} s  the client is told: {}",
        since_cut(seen.told),
        seen.state
    );
    println!("{:6.2} s  of two holders", (seen.told - deleted).as_secs_f64());

    assert_ne!(seen.state, SessionState::SyncConnected);
    assert!(
        !stale.is_empty(),
        "no read succeeded after the deletion: is the lock's lease needless?"
    );
    assert!(
        seen.told > deleted,
        "the client was told in time: is the lock's lease needless?"
    );
}

struct Seen {
    token: i64,
    cut: BootInstant,
    reads: Vec<BootInstant>,
    state: SessionState,
    told: BootInstant,
}
