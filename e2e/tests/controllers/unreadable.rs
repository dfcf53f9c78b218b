//! Children of a lock root that may not be read: nobody can tell whether they are places in the queue, so no pod takes
//! the lock beside them, and users are told which they are.

use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_operator::identity::Identity;
use lockkeeper_product::beside::conditions::{condition, holders, message};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::{BOUND, eventually};
use zookeeper_client::{Acl, Acls, CreateMode, Permission};

use crate::agreeing::set_holders;
use crate::contender::way;
use crate::environment::{alone, identities, shared};
use crate::guarded::Guarded;

/// A client of somebody's that has the identity of the namespace: it may make children of its lock roots.
struct Stranger {
    connection: Onlooker,
    root: String,
}

impl Stranger {
    /// Makes the lock `report`, and connects.
    async fn come(environment: &Environment, space: &Tenant) -> Self {
        space.lock("report", DistributedLockSpec::default()).await;
        space.wait_for_lock("report", "it is provided", is_ready).await;
        let way = way(&environment.ensemble.connect_string(), &identities(space).await);
        Self {
            connection: way.onlooker(0, BOUND).await.unwrap(),
            root: format!("/lockkeeper/locks/{}/report", space.name),
        }
    }

    /// Makes a child that only an identity of its own may read, and returns its path.
    async fn make(&self, name: &str, mode: CreateMode) -> String {
        let own = Identity::parse("digest:stranger:secret").unwrap();
        let acls = [Acl::new(Permission::ALL, own.auth_id())];
        let path = format!("{}/{name}", self.root);
        let options = mode.with_acls(Acls::new(&acls));
        let (_, number) = self.connection.create(&path, b"", &options).await.unwrap();
        match mode {
            CreateMode::EphemeralSequential => format!("{path}{number}"),
            _ => path,
        }
    }
}

fn is_ready(lock: &DistributedLock) -> bool {
    condition(lock, "Ready") == ("True".into(), "Provisioned".into())
}

fn is_unknown(lock: &DistributedLock) -> bool {
    condition(lock, "Ready") == ("False".into(), "UnknownContender".into())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_takes_no_lock_beside_a_child_that_it_may_not_read_and_names_it_and_runs_when_that_is_gone() {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("unreadable").await;
    let stranger = Stranger::come(&environment, &space).await;
    for (pod, name, mode) in [
        // Leader election, for instance.
        ("elected", "n_", CreateMode::EphemeralSequential),
        // Nobody can tell that it belongs to no session.
        ("note", "note", CreateMode::Persistent),
        // A contender by its name, whose deletion cannot be watched.
        ("queued", "_c_x-lock-", CreateMode::EphemeralSequential),
    ] {
        let child = stranger.make(name, mode).await;
        let guarded = Guarded::start(&environment, &space, "report", pod, &[]).await;
        guarded.wait_until_it_says("/readyz", &[format!("we have no right to read {child}")]);
        if pod != "queued" {
            // No server tells the operator of that child: it lists again what waits although nobody holds.
            let name = child.rsplit('/').next().unwrap();
            let is_named = |lock: &DistributedLock| {
                is_unknown(lock) && message(lock, "Ready").starts_with(&format!("the node {name} "))
            };
            space
                .wait_for_lock("report", "the child is named", is_named)
                .await;
        }
        assert!(!guarded.has_run(), "beside {child}: {}", guarded.pod.said());
        let lock = space.api::<DistributedLock>().get("report").await.unwrap();
        assert_eq!(holders(&lock), [""; 0], "beside {child}");

        stranger.connection.delete(&child, None).await.unwrap();
        eventually("its application runs", async || guarded.has_run().then_some(())).await;
        space
            .wait_for_lock("report", "the pod holds", |lock| holders(lock) == [pod])
            .await;
        guarded.leave();
        space
            .wait_for_lock("report", "the queue is empty", |lock| holders(lock).is_empty())
            .await;
    }
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_the_operator_may_not_read_is_named_in_the_status_until_it_is_gone() {
    let Some(environment) = alone().await else { return };
    let space = environment.namespace("found").await;
    let stranger = Stranger::come(&environment, &space).await;
    drop(environment.take_operator());
    let child = stranger.make("n_", CreateMode::EphemeralSequential).await;
    environment.put_operator(environment.operator("operator-after", &[]).await);
    let lock = space
        .wait_for_lock("report", "a stranger is seen", is_unknown)
        .await;
    let name = child.rsplit('/').next().unwrap();
    let said = message(&lock, "Ready");
    assert!(
        said.starts_with(&format!("the node {name} below the lock root")),
        "{said}"
    );
    let note = space.wait_for_event("report", "ProvisioningFailed").await;
    assert_eq!(note, said);

    stranger.connection.delete(&child, None).await.unwrap();
    space.wait_for_lock("report", "it has left", is_ready).await;
    space.leave().await;
}

/// ZooKeeper makes a node anew only when it has no children, whoever may read them.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_agreement_that_waits_for_a_child_that_may_not_be_read_says_so_and_is_in_force_when_that_is_gone()
 {
    let Some(environment) = shared().await else { return };
    let space = environment.namespace("withheld").await;
    let stranger = Stranger::come(&environment, &space).await;
    let child = stranger.make("note", CreateMode::Persistent).await;
    set_holders(&space, "report", 2).await;
    let lock = space
        .wait_for_lock("report", "it waits for the child", |lock| {
            condition(lock, "Ready") == ("False".into(), "AgreementPending".into())
        })
        .await;
    let said = message(&lock, "Ready");
    assert!(said.contains("The operator may not read"), "{said}");
    stranger.connection.delete(&child, None).await.unwrap();
    space.wait_for_lock("report", "it is in force", is_ready).await;
    space.leave().await;
}
