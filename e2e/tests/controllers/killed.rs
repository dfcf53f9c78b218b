//! Operators that are killed between any two of their writes, and answers that get lost.

use std::path::PathBuf;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_lock::zookeeper::Onlooker;
use lockkeeper_product::beside::conditions::condition;
use lockkeeper_product::beside::{Environment, Operator};
use lockkeeper_testbed::eventually::eventually;

use crate::environment::{alone, identities};
use crate::gate::{Gate, Write};
use crate::life::live;

/// The lock by which operators elect their leader.
const LEADERS: &str = "/lockkeeper/operator";

/// A replica behind a gate of its own.
pub struct Gated {
    pub operator: Operator,
    pub gate: Gate,
}

impl Gated {
    pub async fn start(environment: &Environment, name: &str) -> Self {
        let gate = Gate::new(environment).await;
        let kubeconfig = kubeconfig(environment, name, &gate.server);
        let operator = environment
            .operator_by(name, &kubeconfig, &gate.connect, &[])
            .await;
        Self { operator, gate }
    }

    /// In place of the environment's own operator; returns when it leads.
    pub async fn replacing(environment: &Environment, connection: &Onlooker, name: &str) -> Self {
        let leader = Self::start(environment, name).await;
        drop(environment.take_operator());
        forget_leader(connection).await;
        leader.leads().await;
        leader
    }

    /// Kills it (SIGKILL), and deletes its contender as the ensemble does after the session's expiry, so that
    /// no test waits for that.
    pub async fn kill(self, connection: &Onlooker) {
        // On a busy machine it may have lost its lease: then the first contender is another operator's.
        let is_leading = self.operator.pages.is_leading().await;
        drop(self.operator);
        if is_leading {
            forget_leader(connection).await;
        }
    }

    pub async fn leads(&self) {
        eventually("it leads", async || {
            self.operator.pages.is_leading().await.then_some(())
        })
        .await;
    }
}

/// Deletes the contender that leads the operators.
pub async fn forget_leader(connection: &Onlooker) {
    let mut contenders = connection.list_children(LEADERS).await.unwrap();
    contenders.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    let path = format!("{LEADERS}/{}", contenders[0]);
    connection.delete(&path, None).await.unwrap();
}

/// Waits until this many operators queue to lead.
async fn wait_for_queue(connection: &Onlooker, count: usize) {
    eventually("they queue to lead", async || {
        let contenders = connection.list_children(LEADERS).await.unwrap();
        (contenders.len() == count).then_some(())
    })
    .await;
}

/// The operator's kubeconfig, with another address.
fn kubeconfig(environment: &Environment, name: &str, server: &str) -> PathBuf {
    let text = std::fs::read(environment.kubeconfig()).unwrap();
    let mut kubeconfig: serde_json::Value = serde_json::from_slice(&text).unwrap();
    kubeconfig["clusters"][0]["cluster"] = serde_json::json!({"server": server});
    let path = environment
        .ensemble
        .directory()
        .join(format!("{name}.kubeconfig"));
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_operator_finishes_what_one_has_begun_that_was_killed_between_any_two_writes() {
    let Some(environment) = alone().await else { return };
    let connection = environment.connection().await;
    let mut leader = Gated::start(&environment, "killed-0").await;
    // It queues behind the operator that all tests share, and before its own heir, which starts next.
    wait_for_queue(&connection, 2).await;
    let mut heir = Gated::start(&environment, "killed-1").await;
    drop(environment.take_operator());
    forget_leader(&connection).await;
    leader.leads().await;
    let mut after = 0;
    loop {
        // On a busy machine a leader may lose its lease, and queue again.
        if heir.operator.pages.is_leading().await {
            std::mem::swap(&mut leader, &mut heir);
        }
        let space = environment.namespace("killed").await;
        leader.gate.stop(&space.name, after);
        heir.gate.open(&space.name);
        let mut life = Box::pin(live(&environment, &space, &connection));
        tokio::select! {
            () = leader.gate.met(&space.name) => {}
            () = &mut life => {
                let writes = leader.gate.writes(&space.name);
                let is_alone = heir.gate.writes(&space.name).is_empty();
                drop(life);
                space.leave().await;
                if !is_alone {
                    continue;
                }
                // The operators were killed at writes of all kinds: nodes, Secret, finalizer, statuses,
                // roles, request, annotation, events.
                assert!(writes.len() >= 20, "{writes:#?}");
                println!("{} writes in a life: {writes:#?}", writes.len());
                break;
            }
        }
        leader.kill(&connection).await;
        let name = format!("killed-{}", after + 2);
        let (next, ()) = tokio::join!(Gated::start(&environment, &name), life);
        (leader, heir) = (heir, next);
        after += 1;
        space.leave().await;
    }
    environment.put_operator(environment.operator("operator-after", &[]).await);
    drop(heir);
    leader.kill(&connection).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_gets_lost_changes_nothing_whichever_it_is() {
    let Some(environment) = alone().await else { return };
    let connection = environment.connection().await;
    let leader = Gated::replacing(&environment, &connection, "unheard").await;
    let space = environment.namespace("heard").await;
    leader.gate.open(&space.name);
    live(&environment, &space, &connection).await;
    let writes = leader.gate.each_write(&space.name);
    assert!(writes.len() >= 20, "{writes:#?}");
    space.leave().await;
    let (environment, leader, connection) = (&*environment, &leader, &connection);
    let lives = writes.iter().map(|write| async move {
        let space = environment.namespace("unheard").await;
        leader.gate.lose(&space.name, write.clone());
        live(environment, &space, connection).await;
        let is_met = leader.gate.is_met(&space.name);
        space.leave().await;
        (!is_met && write.always_comes()).then_some(write)
    });
    let unmet = futures_util::future::join_all(lives).await;
    let unmet: Vec<_> = unmet.into_iter().flatten().collect();
    assert_eq!(unmet, [] as [&Write; 0], "these did not come again");
    environment.put_operator(environment.operator("operator-heard", &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_leads_before_it_hears_of_a_secret_leaves_the_locks_open_to_those_who_read_it() {
    let Some(environment) = alone().await else { return };
    let connection = environment.connection().await;
    let leader = Gated::start(&environment, "before").await;
    wait_for_queue(&connection, 2).await;
    let heir = Gated::start(&environment, "after").await;
    wait_for_queue(&connection, 3).await;
    drop(environment.take_operator());
    forget_leader(&connection).await;
    leader.leads().await;
    heir.gate.hold_watch("/api/v1/secrets?");

    let space = environment.namespace("late").await;
    heir.gate.open(&space.name);
    let provided = async |name: &str| {
        space.lock(name, DistributedLockSpec::default()).await;
        space
            .wait_for_lock(name, "it is provided", |lock| {
                condition(lock, "Ready").0 == "True"
            })
            .await;
        let root = format!("/lockkeeper/locks/{}/{name}", space.name);
        let (acls, _) = connection.get_acl(&root).await.unwrap();
        let ids = acls.iter().map(|acl| acl.id().to_owned());
        ids.collect::<Vec<_>>()
    };
    let first = provided("first").await;
    let known = identities(&space).await;
    assert!(first.contains(&known[0].acl_id()), "{first:?}");
    leader.kill(&connection).await;
    heir.leads().await;
    // The next lock makes the heir look whether the namespace has an identity.
    assert_eq!(provided("second").await, first);
    assert_eq!(identities(&space).await, known);
    let answers = heir.gate.answers(&space.name);
    let is_secret = |answer: &&String| answer.contains("/secrets");
    let of_secret: Vec<_> = answers.iter().filter(is_secret).collect();
    // It had not heard of the Secret.
    assert!(
        of_secret.len() == 1 && of_secret[0].starts_with("409 POST"),
        "{answers:#?}"
    );
    let (acls, _) = connection
        .get_acl(&format!("/lockkeeper/locks/{}/first", space.name))
        .await
        .unwrap();
    let ids: Vec<_> = acls.iter().map(|acl| acl.id().to_owned()).collect();
    assert_eq!(ids, first);
    space.leave().await;
    environment.put_operator(environment.operator("operator-late", &[]).await);
}
