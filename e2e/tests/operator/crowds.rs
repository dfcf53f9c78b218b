//! A client with the identity of a namespace may make children of its lock roots, as many and as large as the
//! servers accept. This affects only that lock.

use std::fs;

use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_lock::{Control, Mode, YieldRequest};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::children::CHILDREN;
use lockkeeper_operator::zookeeper::queues::Link;
use lockkeeper_operator::zookeeper::queues::picture::Excess;
use zookeeper_client::{Acls, CreateMode, CreateOptions};

use crate::harness::{connected, ensemble, mirrored, operator, tree, wait_for_link, wait_for_picture};

/// A third of the longest request that a server accepts (`jute.maxbuffer`, 1 MB), so that servers on a busy
/// machine keep up.
const LARGE: usize = 300_000;

/// Creations in one transaction.
const BATCH: usize = 500;

const HELD: &[u8] = br#"{"v":1,"state":"held"}"#;

fn persistent() -> CreateOptions<'static> {
    CreateMode::Persistent.with_acls(Acls::anyone_all())
}

/// The most memory that this process ever had, in KiB (proc_pid_status(5), VmHWM).
fn peak() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Makes this many small children.
async fn crowd(connection: &Onlooker, root: &str, count: usize) {
    for from in (0..count).step_by(BATCH) {
        let mut writer = connection.new_multi_writer();
        for at in from..count.min(from + BATCH) {
            let path = format!("{root}/_c_x-lock-{at:010}");
            writer.add_create(&path, HELD, &persistent()).unwrap();
        }
        writer.commit().await.unwrap();
    }
}

#[test]
fn long_data_and_long_names_below_one_lock_root_are_not_read_and_the_lock_beside_it_is_followed() {
    let ensemble = ensemble();
    let tree = tree("/crowds/long");
    let host = ensemble.client("mirror-long").unwrap();
    let pod = Identity::generate("team");
    let [data, names, few, honest] =
        ["data", "names", "few", "honest"].map(|name| LockKey::new("team", name));
    let root = |key: &LockKey| tree.layout().lock(key);
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        for key in [&data, &names, &few, &honest] {
            let identities = [pod.clone()];
            tree.ensure_lock(&connection, key, &identities).await.unwrap();
        }
    });
    let long = |at: usize| format!("{at}{}-lock-0000000001", "x".repeat(LARGE));
    connected(&ensemble, Some(&pod), async |connection| {
        for at in 0..24 {
            let path = format!("{}/_c_x-lock-{at:010}", root(&data));
            connection
                .create(&path, &vec![b' '; LARGE], &persistent())
                .await
                .unwrap();
            let path = format!("{}/{}", root(&names), long(at));
            connection.create(&path, b"", &persistent()).await.unwrap();
        }
        let path = format!("{}/{}", root(&few), long(0));
        connection.create(&path, b"", &persistent()).await.unwrap();
        let path = format!("{}/_c_x-lock-0000000001", root(&honest));
        connection.create(&path, HELD, &persistent()).await.unwrap();
    });
    let before = peak();
    mirrored(&ensemble, &host, "/crowds/long", async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        println!(
            "most memory: {before} KiB before the picture, {} KiB with it",
            peak()
        );
        assert!(
            mirror.queue(&honest).participants(Mode::Exclusive)[0]
                .data
                .is_held()
        );
        assert_eq!(mirror.queue(&names).excess(), Some(&Excess::Names));
        assert_eq!(mirror.queue(&names).contenders().len(), 0);
        let queue = mirror.queue(&data);
        assert_eq!(queue.contenders().len(), 24);
        assert!(
            queue
                .contenders()
                .all(|one| one.foreign.is_none() && one.data.state.is_empty())
        );
        let queue = mirror.queue(&few);
        let stranger = queue
            .strangers()
            .next()
            .expect("a name that long is no contender's");
        assert!(stranger.len() < 256, "{} bytes", stranger.len());

        // A long name in an event counts as one stranger, too. When the names are gone, everything is as
        // before.
        let Link::Up(connection) = mirror.link() else {
            panic!("it is connected")
        };
        let path = format!("{}/{}", root(&honest), long(1));
        connection.create(&path, b"", &persistent()).await.unwrap();
        wait_for_picture(&mirror, |mirror| mirror.queue(&honest).strangers().count() == 1).await;
        connection.delete(&path, None).await.unwrap();
        wait_for_picture(&mirror, |mirror| mirror.queue(&honest).strangers().count() == 0).await;
        for at in 0..24 {
            let path = format!("{}/{}", root(&names), long(at));
            connection.delete(&path, None).await.unwrap();
        }
        wait_for_picture(&mirror, |mirror| mirror.queue(&names).excess().is_none()).await;
    });
}

#[test]
fn a_lock_root_with_more_children_than_the_operator_follows_is_given_up_alone_and_taken_up_when_they_are_gone()
 {
    let ensemble = ensemble();
    let tree = tree("/crowds/many");
    let host = ensemble.client("mirror-many").unwrap();
    let [many, honest] = ["many", "honest"].map(|name| LockKey::new("team", name));
    let root = |key: &LockKey| tree.layout().lock(key);
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        for key in [&many, &honest] {
            tree.ensure_lock(&connection, key, &[]).await.unwrap();
        }
        crowd(&connection, &root(&many), CHILDREN).await;
    });
    let before = peak();
    mirrored(&ensemble, &host, "/crowds/many", async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        println!(
            "most memory: {before} KiB before {CHILDREN} contenders, {} KiB with them",
            peak()
        );
        assert_eq!(
            mirror.queue(&many).contenders().len(),
            CHILDREN,
            "so many are followed"
        );
        let Link::Up(connection) = mirror.link() else {
            panic!("it is connected")
        };
        let last = format!("{}/_c_x-lock-{CHILDREN:010}", root(&many));
        connection.create(&last, HELD, &persistent()).await.unwrap();
        wait_for_picture(&mirror, |mirror| mirror.queue(&many).excess().is_some()).await;
        assert_eq!(
            mirror.queue(&many).excess(),
            Some(&Excess::Children(CHILDREN + 1))
        );
        crowd(&connection, &root(&honest), 1).await;
        wait_for_picture(&mirror, |mirror| {
            let held = mirror.queue(&honest).participants(Mode::Exclusive);
            held.first().is_some_and(|one| one.data.is_held())
        })
        .await;
        for from in (0..CHILDREN).step_by(BATCH) {
            let mut writer = connection.new_multi_writer();
            for at in from..from + BATCH {
                let path = format!("{}/_c_x-lock-{at:010}", root(&many));
                writer.add_delete(&path, None).unwrap();
            }
            writer.commit().await.unwrap();
        }
        wait_for_picture(&mirror, |mirror| {
            let queue = mirror.queue(&many);
            queue.excess().is_none() && queue.contenders().len() == 1
        })
        .await;
    });
}

#[test]
fn a_control_node_that_somebody_has_filled_is_not_read_and_a_handoff_is_asked_for_nevertheless() {
    let ensemble = ensemble();
    let tree = tree("/crowds/control");
    let key = LockKey::new("team", "report");
    let pod = Identity::generate("team");
    let request = YieldRequest {
        id: "1".into(),
        contenders: vec!["_c_x-lock-0000000001".into()],
    };
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        tree.ensure_lock(&connection, &key, std::slice::from_ref(&pod))
            .await
            .unwrap();
    });
    connected(&ensemble, Some(&pod), async |connection| {
        let data = format!(r#"{{"v":1,"x":[{}1]}}"#, "1,".repeat(LARGE / 2));
        connection
            .set_data(&tree.layout().control(&key), data.as_bytes(), None)
            .await
            .unwrap();
    });
    connected(&ensemble, Some(&operator()), async |connection| {
        assert!(tree.request_yield(&connection, &key, &request).await.unwrap());
        let (data, _) = connection.get_data(&tree.layout().control(&key)).await.unwrap();
        assert!(data.len() < 1000 && Control::parse(&data).asks("_c_x-lock-0000000001"));
    });
}
