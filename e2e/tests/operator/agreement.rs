//! The operator writes the agreement of a lock, and changes it only while the queue is empty.

use std::num::NonZeroU32;

use lockkeeper_lock::{Agreement, Mode};
use lockkeeper_operator::identity::Identity;
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::nodes::Agreed;
use zookeeper_client::{Acls, CreateMode, Error};

use crate::harness::{connected, ensemble, operator, tree};

fn holders(count: u32) -> Agreement {
    Agreement::of(Mode::Semaphore(NonZeroU32::new(count).unwrap()))
}

#[test]
fn another_agreement_waits_until_nobody_is_in_the_queue_and_keeps_the_rights() {
    let ensemble = ensemble();
    let tree = tree("/agreement");
    let key = LockKey::new("a", "report");
    let pod = Identity::generate("a");
    let identities = [pod.clone()];
    let root = tree.layout().lock(&key);
    let agree = |agreement: Agreement| {
        connected(&ensemble, Some(&operator()), async |connection| {
            tree.ensure(&connection).await.unwrap();
            tree.ensure_lock(&connection, &key, &identities).await.unwrap();
            let agreed = tree
                .agree(&connection, &key, &identities, agreement)
                .await
                .unwrap();
            let (data, _) = connection.get_data(&root).await.unwrap();
            (agreed, Agreement::parse(&data).unwrap().unwrap())
        })
    };
    assert_eq!(agree(holders(1)), (Agreed::Done, holders(1)));
    assert_eq!(agree(holders(1)), (Agreed::Done, holders(1)));
    // The requests of a pod, and those that it has no right to.
    connected(&ensemble, Some(&pod), async |connection| {
        let data = holders(2).to_data();
        assert_eq!(
            connection.set_data(&root, &data, None).await.map(drop),
            Err(Error::NoAuth)
        );
        assert_eq!(connection.delete(&root, None).await, Err(Error::NoAuth));
        let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
        connection
            .create(&format!("{root}/_c_x-lock-"), b"", &options)
            .await
            .unwrap();
    });
    let before = Some(holders(1));
    assert_eq!(agree(holders(2)), (Agreed::Pending { before }, holders(1)));
    connected(&ensemble, Some(&pod), async |connection| {
        for name in connection.list_children(&root).await.unwrap() {
            connection.delete(&format!("{root}/{name}"), None).await.unwrap();
        }
    });
    assert_eq!(agree(holders(2)), (Agreed::Done, holders(2)));
    connected(&ensemble, Some(&pod), async |connection| {
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        connection
            .create(&format!("{root}/_c_x-lock-"), b"", &options)
            .await
            .unwrap();
    });
}

#[test]
fn a_lock_in_use_from_before_there_were_agreements_is_given_one() {
    let ensemble = ensemble();
    let tree = tree("/agreement-from-before");
    let key = LockKey::new("a", "report");
    connected(&ensemble, Some(&operator()), async |connection| {
        tree.ensure(&connection).await.unwrap();
        tree.ensure_lock(&connection, &key, &[]).await.unwrap();
        let root = tree.layout().lock(&key);
        let options = CreateMode::Ephemeral.with_acls(Acls::anyone_all());
        let contender = format!("{root}/_c_x-lock-0000000001");
        connection.create(&contender, b"", &options).await.unwrap();
        let agreed = tree.agree(&connection, &key, &[], holders(1)).await.unwrap();
        assert_eq!(agreed, Agreed::Done);
        let agreed = tree.agree(&connection, &key, &[], holders(3)).await.unwrap();
        let before = Some(holders(1));
        assert_eq!(agreed, Agreed::Pending { before });
    });
}
