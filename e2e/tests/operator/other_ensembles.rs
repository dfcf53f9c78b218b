//! Ensembles that a lock names: the operator authenticates with the lock's Secret, and reports problems.

use std::sync::Arc;

use lockkeeper_crds::lock::Reason;
use lockkeeper_lock::ensemble::{Connection, Ensemble as _, Op};
use lockkeeper_lock::zookeeper::{Credentials, ZooKeeper};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::nodes::{Removal, Tree, TreeError};
use lockkeeper_operator::zookeeper::paths::Layout;
use lockkeeper_operator::zookeeper::queues::{Link, Mirror};
use lockkeeper_testbed::certificates::{Authority, write};
use lockkeeper_testbed::ensemble::{TlsFiles, block_on};
use lockkeeper_testbed::{Config, Ensemble};
use zookeeper_client::{Acls, CreateMode, Error};

use crate::harness::{BOUND, SESSION, connected, ensemble, wait_for_link, wait_for_picture};

fn several(identities: &[Identity]) -> Credentials {
    let identities = identities.iter().map(Identity::digest_auth).collect();
    Credentials::Digests(tokio::sync::watch::channel(identities).1)
}

fn way(connect: &str, identities: &[Identity]) -> ZooKeeper {
    ZooKeeper::new(connect.parse().unwrap(), SESSION).with_credentials(several(identities))
}

/// Runs `work` with a mirror of one namespace.
fn followed<T: Send>(
    ensemble: &Ensemble,
    zookeeper: ZooKeeper,
    tree: Tree,
    work: impl AsyncFnOnce(Mirror) -> T + Send,
) -> T {
    block_on(ensemble.observer(), || async move {
        let (mirror, task) = Mirror::new(zookeeper, tree, Arc::default());
        tokio::select! {
            () = task.run() => unreachable!("it runs for ever"),
            result = work(mirror) => result,
        }
    })
    .unwrap()
}

/// Waits until the ensemble is unusable for this reason, and returns the message.
async fn refused(mirror: &Mirror, reason: Reason) -> String {
    wait_for_link(
        mirror,
        |link| matches!(link, Link::Down(problem) if problem.reason == reason),
    )
    .await;
    match mirror.link() {
        Link::Down(problem) => problem.message,
        link => panic!("{link:?}"),
    }
}

#[test]
fn a_namespace_owns_its_part_through_rotations_and_others_need_a_path_of_their_own() {
    let ensemble = ensemble();
    let connect = ensemble.connect_string();
    let layout = || Layout::new("/others/lockkeeper");
    let [first, second, third, foreign] = ["a", "a", "a", "b"].map(Identity::generate);
    let key = LockKey::new("a", "report");
    let generations = [
        vec![first.clone()],
        vec![second.clone(), first.clone()],
        vec![third.clone(), second.clone()],
    ];
    for (rotations, identities) in generations.iter().enumerate() {
        let tree = Tree::of_namespace(layout(), "a", identities);
        followed(
            &ensemble,
            way(&connect, identities),
            tree.clone(),
            async |mirror| {
                wait_for_link(&mirror, |link| link.up().is_some()).await;
                assert_eq!(mirror.tick_time(), Some(ensemble.config().tick), "it was asked");
                let Link::Up(connection) = mirror.link() else {
                    panic!("it is connected")
                };
                let repairs = tree.ensure_lock(&connection, &key, &[]).await.unwrap();
                let expected = if rotations == 0 { (2, 0) } else { (0, 2) };
                assert_eq!((repairs.made, repairs.rights), expected, "after {rotations}");
                // The requests of a pod.
                let root = tree.layout().lock(&key);
                let options = CreateMode::EphemeralSequential.with_acls(Acls::creator_all());
                let contender = format!("{root}/_c_x-lock-");
                connection
                    .create(&contender, b"10.0.0.7", &options)
                    .await
                    .unwrap();
                wait_for_picture(&mirror, |mirror| mirror.queue(&key).contenders().len() > 0).await;
            },
        );
    }
    // Neither the former identity has rights, nor another one, nor a client without one.
    let root = layout().lock(&key);
    for identity in [Some(&first), Some(&foreign), None] {
        let listed = connected(&ensemble, identity, async |connection| {
            connection.list_children(&root).await.map(drop)
        });
        assert_eq!(listed, Err(Error::NoAuth), "{identity:?}");
    }
    // Another identity has no right to the parents, and the message names the node.
    let identities = [foreign];
    let tree = Tree::of_namespace(layout(), "b", &identities);
    followed(
        &ensemble,
        way(&connect, &identities),
        tree.clone(),
        async |mirror| {
            wait_for_link(&mirror, |link| link.up().is_some()).await;
            let Link::Up(connection) = mirror.link() else {
                panic!("it is connected")
            };
            let key = LockKey::new("b", "report");
            let made = tree.ensure_lock(&connection, &key, &[]).await;
            let Err(TreeError::Foreign { path }) = made else {
                panic!("{made:?}")
            };
            assert_eq!(path, "/others/lockkeeper/locks/b");
            // An object does not wait for nodes that were never created.
            assert_eq!(tree.remove_lock(&connection, &key).await.unwrap(), Removal::Done);
        },
    );
}

#[test]
fn a_session_that_is_taken_elsewhere_is_still_who_it_was_when_it_queued() {
    let ensemble = ensemble();
    let [before, now] = ["a", "a"].map(|namespace| Identity::generate(namespace).digest_auth());
    let (identities, followed) = tokio::sync::watch::channel(vec![before]);
    let zookeeper = ZooKeeper::new(ensemble.connect_string().parse().unwrap(), SESSION)
        .with_credentials(Credentials::Digests(followed));
    block_on(ensemble.observer(), || async move {
        let first = zookeeper.attach(0, None, BOUND).await.unwrap();
        first.make_path("/moved/lock", Vec::new()).await.unwrap();
        let contender = first.create_contender("/moved/lock/_c_x-lock-", Vec::new(), 0);
        let path = contender.await.unwrap().path;
        // Before the present connection can authenticate with it.
        identities.send_replace(vec![now]);
        let second = zookeeper.attach(1, Some(&first), BOUND).await.unwrap();
        let renewal = vec![Op::Check { path }];
        assert_eq!(
            second.multi(renewal).await,
            Ok(()),
            "its contender is open to the one before alone"
        );
    })
    .unwrap();
}

#[test]
fn an_ensemble_that_refuses_the_credentials_is_not_taken_for_one_that_is_down() {
    let ensemble = Ensemble::start(Config {
        servers: 1,
        java_arguments: vec!["-Dzookeeper.DigestAuthenticationProvider.enabled=false".to_owned()],
        ..Config::default()
    })
    .expect("the servers start");
    let identities = [Identity::generate("a")];
    let tree = Tree::of_namespace(Layout::new("/lockkeeper"), "a", &identities);
    let zookeeper = way(&ensemble.connect_string(), &identities);
    followed(&ensemble, zookeeper, tree, async |mirror| {
        let sentence = refused(&mirror, Reason::CredentialsRefused).await;
        assert_eq!(sentence, "the server refused the credentials");
    });
}

#[test]
fn over_tls_a_lock_is_provided_and_a_certificate_that_is_not_accepted_is_said_to_be_that() {
    // As `main` does; all tests of this process share it.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let files = tempfile::tempdir().unwrap();
    let (ours, foreign) = (Authority::new("ours"), Authority::new("foreign"));
    write(files.path(), "ca.pem", ours.pem());
    let ensemble = Ensemble::start(Config {
        servers: 1,
        tls: Some(TlsFiles {
            key_store: files.path().join("server.pem"),
            trust_store: files.path().join("ca.pem"),
        }),
        ..Config::default()
    })
    .expect("the servers start");
    let address = ensemble.address(0).ip().to_string();
    let server = ours.sign("server", &[address]);
    write(files.path(), "server.pem", &(server.key + &server.chain));

    let identities = [Identity::generate("a")];
    let tree = Tree::of_namespace(Layout::new("/lockkeeper"), "a", &identities);
    let client = ours.sign("client", &[]);
    let own = Some((client.chain.as_str(), client.key.as_str()));
    let zookeeper = way(&ensemble.tls_address(0), &identities);
    for (ca, own, part) in [
        (foreign.pem(), own, "not signed by one of the authorities"),
        (ours.pem(), None, "requires a client's certificate"),
    ] {
        let zookeeper = zookeeper.clone().with_tls(ca, own).unwrap();
        followed(&ensemble, zookeeper, tree.clone(), async |mirror| {
            let sentence = refused(&mirror, Reason::TlsFailed).await;
            assert!(sentence.contains(part), "{sentence}");
        });
    }
    let zookeeper = zookeeper.with_tls(ours.pem(), own).unwrap();
    // A busy server may tell its tick too late for one connection.
    let told = (0..5).find_map(|_| {
        followed(&ensemble, zookeeper.clone(), tree.clone(), async |mirror| {
            wait_for_link(&mirror, |link| link.up().is_some()).await;
            mirror.tick_time()
        })
    });
    assert_eq!(told, Some(ensemble.config().tick));
    followed(&ensemble, zookeeper, tree.clone(), async |mirror| {
        wait_for_link(&mirror, |link| link.up().is_some()).await;
        let key = LockKey::new("a", "report");
        let connection = mirror.link().up().cloned().unwrap();
        tree.ensure_lock(&connection, &key, &[]).await.unwrap();
        tokio::time::timeout(
            BOUND,
            wait_for_picture(&mirror, |mirror| mirror.queue(&key).exists),
        )
        .await
        .unwrap();
        // The mirror reads a long list over a connection of its own, to the same server and with the same
        // identity.
        let path = format!("{}/a", tree.layout().locks());
        let list = async |limit| connection.list_within(&path, limit, BOUND).await.unwrap();
        assert_eq!(list(100).await, Some(vec!["report".to_owned()]));
        assert_eq!(list(5).await, None);
    });
}
