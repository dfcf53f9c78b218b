//! The ID of an ensemble, on real servers.

use std::sync::Arc;

use lockkeeper_operator::zookeeper::ensemble_id::{identify, node};
use lockkeeper_operator::zookeeper::queues::{Link, Mirror};
use lockkeeper_testbed::ensemble::block_on;
use tokio::sync::watch;
use uuid::Uuid;
use zookeeper_client::Error;

use crate::harness::{BOUND, connected, ensemble, mirrored, operator, tree, wait_for_link, zookeeper};

#[test]
fn an_ensemble_gets_one_id_that_everybody_may_read_and_nobody_but_the_operator_change() {
    let ensemble = ensemble();
    let (here, there) = (tree("/ids/here"), tree("/ids/there"));
    let (mine, again, other) = connected(&ensemble, Some(&operator()), async |connection| {
        for tree in [&here, &there] {
            tree.ensure(&connection).await.unwrap();
        }
        // All replicas at once.
        let all = futures_util::future::join_all((0..5).map(|_| identify(&connection, &here, None))).await;
        let ids: Vec<Uuid> = all.into_iter().map(|one| one.unwrap().id).collect();
        let again = identify(&connection, &here, Some(Uuid::nil())).await.unwrap().id;
        let other = identify(&connection, &there, None).await.unwrap().id;
        (ids, again, other)
    });
    assert!(mine.iter().all(|id| *id == again), "{mine:?}, {again}");
    assert_ne!(again, other, "another root is another ensemble");
    let path = node("/ids/here");
    let (read, written, deleted) = connected(&ensemble, None, async |connection| {
        (
            connection.get_data(&path).await.unwrap().0,
            connection.set_data(&path, b"mine", None).await.map(drop),
            connection.delete("/ids/here/ensemble-id", None).await,
        )
    });
    assert_eq!(read, again.to_string().as_bytes());
    assert_eq!(written, Err(Error::NoAuth));
    // The right to delete a node is in the ACL of its parent.
    assert_eq!(deleted, Err(Error::NoAuth));
}

fn is_refused(link: &Link) -> bool {
    matches!(link, Link::Down(problem) if problem.message.contains("belongs to the cluster ours"))
}

#[test]
fn a_root_is_one_clusters_and_another_one_is_told_whose_it_is() {
    let ensemble = ensemble();
    let root = "/ids/clusters";
    let of_cluster = |uid: &str| tree(root).of_cluster(watch::channel(Some(uid.into())).1);
    let (ours, theirs) = (of_cluster("ours"), of_cluster("theirs"));
    let (first, refused, again) = connected(&ensemble, Some(&operator()), async |connection| {
        ours.ensure(&connection).await.unwrap();
        (
            identify(&connection, &ours, None).await.map(|one| one.id),
            identify(&connection, &theirs, None).await.map(|one| one.id),
            identify(&connection, &ours, None).await.map(|one| one.id),
        )
    });
    assert_eq!(first.unwrap(), again.unwrap());
    let refused = refused.unwrap_err().to_string();
    assert!(
        refused.contains("/ids/clusters belongs to the cluster ours, and this is the cluster theirs"),
        "{refused}"
    );
    // The operators of the other cluster do not even queue to lead: their link is never up.
    let host = ensemble.client("ids-clusters").unwrap();
    let mirrored_as = |cluster: &str| {
        let (zookeeper, tree) = (zookeeper(&ensemble, Some(&operator())), of_cluster(cluster));
        block_on(&host, || async move {
            let (mirror, task) = Mirror::new(zookeeper, tree, Arc::default());
            tokio::select! {
                () = task.run() => unreachable!("it runs for ever"),
                () = wait_for_link(&mirror, |link| link.up().is_some() || is_refused(link)) => mirror.link(),
            }
        })
        .unwrap()
    };
    assert!(mirrored_as("ours").up().is_some());
    let link = mirrored_as("theirs");
    assert!(is_refused(&link), "{link:?}");
}

#[test]
fn an_id_that_is_deleted_by_hand_comes_back_as_it_was_and_one_that_is_none_stops_everything() {
    let ensemble = ensemble();
    let host = ensemble.client("ids-kept").unwrap();
    let path = node("/ids/kept");
    mirrored(&ensemble, &host, "/ids/kept", async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        let before = mirror.id().unwrap();
        let Link::Up(connection) = mirror.link() else {
            panic!("it was up")
        };
        connection.delete(&path, None).await.unwrap();
        let back = async {
            loop {
                if let Ok((data, _)) = connection.get_data(&path).await {
                    return data;
                }
            }
        };
        let back = tokio::time::timeout(BOUND, back).await.expect("it comes back");
        assert_eq!(back, before.to_string().as_bytes());

        let other = Uuid::new_v4();
        connection
            .set_data(&path, other.to_string().as_bytes(), None)
            .await
            .unwrap();
        wait_for_link(&mirror, |link| link.up().is_some() && mirror.id() == Some(other)).await;
        let Link::Up(connection) = mirror.link() else {
            panic!("it was up")
        };
        connection.set_data(&path, b"ours", None).await.unwrap();
        wait_for_link(&mirror, |link| {
            matches!(link, Link::Down(problem) if problem.message.contains("must hold the UUID of the ensemble"))
        })
        .await;
    });
}
