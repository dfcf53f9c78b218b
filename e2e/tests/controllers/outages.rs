//! Servers and operators fail while queues change: no lock shows a former state, or that of another lock.

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_product::beside::conditions::{condition, holders, waiting};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::eventually;

use crate::churn::Churn;
use crate::environment::alone;
use crate::history::History;
use crate::killed::{Gated, forget_leader};

/// Changes of holders to see before a fault, and after it.
const SOME: usize = 2;

/// A namespace whose lock `report` changes hands all the time.
struct Busy {
    space: Tenant,
    churn: Churn,
    history: History,
}

impl Busy {
    async fn start(environment: &Environment, name: &str) -> Self {
        let space = environment.namespace(name).await;
        space.lock("report", DistributedLockSpec::default()).await;
        space
            .wait_for_lock("report", "it is ready", |lock| {
                condition(lock, "Ready").0 == "True"
            })
            .await;
        let history = History::follow(&space);
        let churn = Churn::start(environment, &space);
        history.grows(SOME).await;
        Self {
            space,
            churn,
            history,
        }
    }

    /// Ends: the status has to match the queue, and all earlier statuses have to have been right in their
    /// time.
    async fn check(self, connection: &Onlooker) {
        self.history.grows(SOME).await;
        let queue = self.churn.stop().await;
        self.space
            .wait_for_lock("report", "the status is that of the queue", |lock| {
                [holders(lock), waiting(lock)].concat() == queue
            })
            .await;
        self.history.check();
        empty(connection, &self.space).await;
        self.space.leave().await;
    }
}

async fn empty(connection: &Onlooker, space: &Tenant) {
    let root = format!("/lockkeeper/locks/{}/report", space.name);
    for name in connection.list_children(&root).await.unwrap() {
        connection.delete(&format!("{root}/{name}"), None).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_change_while_the_api_server_is_down_and_statuses_catch_up() {
    let Some(environment) = alone().await else { return };
    let busy = Busy::start(&environment, "unserved").await;
    environment.cluster.kill("kube-apiserver").unwrap();
    tokio::task::block_in_place(|| environment.cluster.start_again("kube-apiserver")).unwrap();
    busy.check(&environment.connection().await).await;
    let mut operator = environment.take_operator();
    assert!(operator.process.is_running(), "{}", operator.log());
    environment.put_operator(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_the_whole_ensemble_statuses_follow_again() {
    let Some(environment) = alone().await else { return };
    let busy = Busy::start(&environment, "restarted").await;
    for server in 0..environment.ensemble.len() {
        environment.ensemble.kill(server);
    }
    for server in 0..environment.ensemble.len() {
        environment.ensemble.launch(server).unwrap();
    }
    tokio::task::block_in_place(|| environment.ensemble.wait_ready()).unwrap();
    busy.check(&environment.connection().await).await;
    let mut operator = environment.take_operator();
    assert!(operator.process.is_running(), "{}", operator.log());
    environment.put_operator(operator);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_leader_is_killed_amid_changes_no_lock_shows_another_ones_queue_or_an_older_holder() {
    let Some(environment) = alone().await else { return };
    let heir = environment.operator("operator-heir", &[]).await;
    // Two locks of the same name.
    let (one, other) = tokio::join!(
        Busy::start(&environment, "one"),
        Busy::start(&environment, "other")
    );
    drop(environment.take_operator());
    let connection = environment.connection().await;
    tokio::join!(one.check(&connection), other.check(&connection));
    assert!(heir.pages.is_leading().await, "{}", heir.log());
    environment.put_operator(heir);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_a_replica_wrote_before_it_lost_its_lease_and_that_comes_late_is_refused() {
    let Some(environment) = alone().await else { return };
    let connection = environment.connection().await;
    let slow = Gated::replacing(&environment, &connection, "slow").await;
    let busy = Busy::start(&environment, "late").await;
    let space = &busy.space;
    slow.gate.hold(&space.name, "/status");
    slow.gate.met(&space.name).await;
    // The former leader lives and is connected, but does not lead any more.
    let heir = environment.operator("operator-prompt", &[]).await;
    forget_leader(&connection).await;
    busy.history.grows(SOME).await;
    slow.gate.open(&space.name);
    eventually("the late status reaches the API server", async || {
        let answers = slow.gate.answers(&space.name);
        answers
            .iter()
            .any(|answer| answer.contains("/status"))
            .then_some(())
    })
    .await;
    let answers = slow.gate.answers(&space.name);
    assert!(
        answers.iter().all(|answer| answer.starts_with("409 PATCH")),
        "{answers:?}"
    );
    assert!(heir.pages.is_leading().await, "{}", heir.log());
    busy.check(&connection).await;
    environment.put_operator(heir);
}
