//! Each ensemble that a lock names has a session in a process of its own, which works as the operator's own
//! session does.

use std::fs;
use std::sync::Arc;

use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_lock::{Agreement, CleanRelease, Control, FencingToken, Mode, YieldRequest};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::work_queue::WorkQueue;
use lockkeeper_operator::zookeeper::client::Way;
use lockkeeper_operator::zookeeper::ensemble::Ensemble as Followed;
use lockkeeper_operator::zookeeper::nodes::{Agreed, Ending, Removal};
use lockkeeper_operator::zookeeper::reachability::Reachability;
use lockkeeper_operator::zookeeper::sandbox::wire::Hello;
use lockkeeper_product::binaries;
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use zookeeper_client::{Acls, CreateMode};

use crate::harness::BOUND;

const DATA: &[u8] =
    br#"{"v":1,"state":"held","pod":{"namespace":"a","name":"report-0","uid":"u","node":"n"}}"#;

/// Waits for a connection to the ensemble.
async fn way(followed: &Followed) -> Way {
    let mut reachability = followed.reachability.clone();
    let up = tokio::time::timeout(
        BOUND,
        reachability.wait_for(|seen| matches!(seen, Reachability::Up(_))),
    )
    .await;
    match up.expect("in time").expect("it is followed").clone() {
        Reachability::Up(way) => way,
        other => panic!("{other:?}"),
    }
}

async fn wait_for_queue(followed: &Followed, changes: &WorkQueue, key: &LockKey, contenders: usize) {
    let waiting = async {
        while followed.view.queue(key).contenders().len() != contenders {
            changes.take().await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.expect("in time");
}

async fn connected(connect: &str, identity: &Identity) -> Onlooker {
    let credentials = Credentials::Digest(identity.digest_auth());
    let zookeeper = ZooKeeper::new(connect.parse().unwrap(), BOUND / 10).with_credentials(credentials);
    zookeeper.onlooker(0, BOUND).await.unwrap()
}

/// The child processes that are sessions.
fn sessions() -> Vec<Pid> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let status = fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let is_ours = status.contains(&format!("\nPPid:\t{}\n", std::process::id()));
        if is_ours && line.ends_with(b"\0ensemble-session\0") {
            let id = entry.file_name().to_string_lossy().parse().unwrap();
            found.extend(Pid::from_raw(id));
        }
    }
    found
}

#[test]
fn a_lock_in_an_ensemble_that_it_names_is_looked_after_by_a_process_and_by_the_next_one_when_that_is_killed()
{
    let ensemble = Ensemble::start(Config {
        servers: 1,
        ..Config::default()
    })
    .expect("the server starts");
    let (identity, old) = (Identity::generate("a"), Identity::generate("a"));
    let connect = format!("{}/team", ensemble.connect_string());
    let hello = Hello {
        connect: connect.clone(),
        unnamed: Vec::new(),
        root: "/team/lockkeeper".to_owned(),
        namespace: "a".to_owned(),
        identities: vec![identity.to_line(), old.to_line()],
        tls: None,
    };
    let key = LockKey::new("a", "report");
    block_on(ensemble.observer(), || async {
        let changes = Arc::<WorkQueue>::default();
        let mut tasks = JoinSet::new();
        let program = binaries::operator().unwrap();
        let servers = connect.parse().unwrap();
        let followed = Followed::apart(servers, program, hello, Arc::clone(&changes), &mut tasks);
        let way = way(&followed).await;
        let id = followed.view.id().expect("it is known");
        assert_eq!(
            followed.view.tick_time(),
            Some(ensemble.config().tick),
            "it was asked"
        );

        let repairs = way.ensure_lock(&key, &[]).await.unwrap();
        assert_eq!((repairs.made, repairs.rights), (2, 0));
        let agreement = Agreement::of(Mode::Exclusive);
        assert_eq!(way.agree(&key, &[], agreement).await.unwrap(), Agreed::Done);
        // A pod, which knows only the old identity.
        let pods = connected(&connect, &old).await;
        let options = CreateMode::EphemeralSequential.with_acls(Acls::creator_all());
        let contender = "/team/lockkeeper/locks/a/report/_c_x-lock-";
        let (_, sequence) = pods.create(contender, DATA, &options).await.unwrap();
        let name = format!("_c_x-lock-{sequence}");
        wait_for_queue(&followed, &changes, &key, 1).await;
        let queue = followed.view.queue(&key);
        let contender = queue.contenders().next().expect("it stands in the queue");
        assert_eq!(*contender.name, *name);
        assert!(queue.exists && contender.data.is_held());
        let behind = way.left_behind("a", identity.user()).await.unwrap();
        assert_eq!(behind, [(key.clone(), "pod report-0".to_owned())]);
        assert_eq!(way.left_behind("a", old.user()).await.unwrap(), []);

        let others = Agreement::of(Mode::Write);
        let agreed = way.agree(&key, &[], others).await.unwrap();
        assert_eq!(
            agreed,
            Agreed::Pending {
                before: Some(agreement)
            }
        );
        let request = YieldRequest {
            id: "once".to_owned(),
            contenders: vec![name.clone()],
        };
        assert!(way.request_yield(&key, &request).await.unwrap());
        assert!(
            !way.request_yield(&key, &request).await.unwrap(),
            "it was asked already"
        );
        assert_eq!(way.remove_lock(&key).await.unwrap(), Removal::InUse);

        // The known queue stays, and the next process sees the changes from the meantime.
        let [session] = sessions()[..] else {
            panic!("there is one session")
        };
        kill_process(session, Signal::KILL).unwrap();
        let mut reachability = followed.reachability.clone();
        let gone = tokio::time::timeout(
            BOUND,
            reachability.wait_for(|seen| !matches!(seen, Reachability::Up(_))),
        );
        drop(gone.await.expect("in time").unwrap());
        assert_eq!(followed.view.queue(&key), queue);
        assert!(way.ensure_lock(&key, &[]).await.is_err());
        // One contender has released, and another one's session ends.
        let token = contender.token;
        let released = CleanRelease {
            contender: "c1".to_owned(),
            token: FencingToken(1),
        };
        let control = Control::default().with_release(released.clone());
        let path = "/team/lockkeeper/control/a/report";
        pods.set_data(path, &control, None).await.unwrap();
        drop(pods);
        let way = self::way(&followed).await;
        wait_for_queue(&followed, &changes, &key, 0).await;
        assert_eq!(followed.view.id(), Some(id), "the same ensemble");
        let died = CleanRelease {
            contender: name,
            token,
        };
        assert_eq!(
            way.endings(&key, &[died, released]).await.unwrap(),
            [Ending::Lost, Ending::Released]
        );
        assert_eq!(way.ensure_lock(&key, &[]).await.unwrap().made, 0);
        assert_eq!(way.remove_lock(&key).await.unwrap(), Removal::Done);

        // Every process ends when it is not needed any more.
        tasks.shutdown().await;
        assert_eq!(sessions(), []);
    })
    .unwrap();
}
