//! Contenders of machines that are known to be off, and all those that are not. The sessions live on while their
//! contenders are removed, so their end cannot be the reason.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_product::beside::conditions::{holders, waiting};
use lockkeeper_product::beside::{Environment, Tenant};
use lockkeeper_testbed::eventually::eventually;

use crate::environment::alone;
use crate::machine::Machine;
use crate::seat::Seat;

const TRUSTS: &str = "--trust-out-of-service-taint";
const KNOWN: &str = "lockkeeper_operator_contenders_on_known_machines ";
const FENCED: &str = "lockkeeper_operator_fenced_contenders_total{";

/// Replaces the running operator by one that trusts the taint.
async fn trust(environment: &Environment) {
    drop(environment.take_operator());
    environment.put_operator(environment.operator("operator-trusting", &[TRUSTS]).await);
}

/// Puts one back that does not, for the other tests.
async fn restore(environment: &Environment) {
    drop(environment.take_operator());
    environment.put_operator(environment.operator("operator-after", &[]).await);
}

/// Waits until the operator knows the machines of so many contenders.
async fn wait_until_known(environment: &Environment, count: f64) {
    let pages = environment.pages()[0].clone();
    eventually(&format!("{count} contenders are on known machines"), async || {
        // Numbers of a page: whole ones.
        (pages.measured(KNOWN).await.total_cmp(&count).is_eq()).then_some(())
    })
    .await;
}

/// Waits until the operator counts so many removals. Its page of metrics may be a quarter of a second older than the status
/// that tells of them.
async fn wait_until_counted(environment: &Environment, count: f64) {
    let pages = environment.pages()[0].clone();
    eventually(&format!("{count} contenders were removed"), async || {
        (pages.measured(FENCED).await.total_cmp(&count).is_eq()).then_some(())
    })
    .await;
}

/// The pods in the queue, in order.
fn queue(lock: &DistributedLock) -> Vec<String> {
    holders(lock).into_iter().chain(waiting(lock)).collect()
}

async fn wait_for_queue(space: &Tenant, wanted: &[&str]) -> DistributedLock {
    let what = format!("the queue is {wanted:?}");
    space
        .wait_for_lock("report", &what, |lock| {
            !holders(lock).is_empty() && queue(lock) == wanted
        })
        .await
}

/// A pod on each of these machines, and its contender, one after the other.
async fn join(environment: &Environment, space: &Tenant, pods: &[(&Machine, &str)]) -> Vec<Seat> {
    let mut joined = Vec::new();
    let mut names = Vec::new();
    for (machine, name) in pods {
        let pod = machine.pod(space, name, "report").await;
        joined.push(Seat::take(environment, space, "report", &pod).await);
        names.push(*name);
        wait_for_queue(space, &names).await;
    }
    joined
}

/// Ends everything of a test. No kubelet says that a pod has ended, and a namespace waits for its pods.
async fn leave(space: Tenant, seats: Vec<Seat>) {
    drop(seats);
    let now = DeleteParams::default().grace_period(0);
    let pods = space.api::<Pod>();
    pods.delete_collection(&now, &ListParams::default())
        .await
        .unwrap();
    space.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_and_waiters_of_a_machine_that_was_powered_off_are_removed_also_after_their_pods() {
    let Some(environment) = alone().await else { return };
    trust(&environment).await;
    let space = environment.namespace("fenced").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let off = Machine::boot(&environment, &space, "off").await;
    let on = Machine::boot(&environment, &space, "on").await;
    let seats = join(&environment, &space, &[(&off, "a"), (&off, "b"), (&on, "c")]).await;
    wait_until_known(&environment, 3.0).await;
    // As Kubernetes does with the pods of a node that is out of service.
    let pods = space.api::<Pod>();
    for name in ["a", "b"] {
        let now = DeleteParams::default().grace_period(0);
        pods.delete(name, &now).await.unwrap();
    }
    off.fall_silent().await;
    off.put_out_of_service().await;
    let lock = wait_for_queue(&space, &["c"]).await;
    let fenced = lock.status.unwrap().fenced.expect("the status says so");
    assert_eq!((fenced.pod.as_str(), &fenced.node), ("b", &off.name));
    let note = space.wait_for_event("report", "NodeFenced").await;
    assert_eq!(
        note,
        format!(
            "removed 2 contenders, of a, b: their node {} is out of service",
            off.name
        )
    );
    let note = space.wait_for_event("report", "LockLost").await;
    assert!(
        note.contains(&format!("its node {} is out of service", off.name)),
        "{note}"
    );
    wait_until_counted(&environment, 2.0).await;
    restore(&environment).await;
    leave(space, seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_silent_or_has_the_taint_keeps_its_contenders_until_both_are_true() {
    let Some(environment) = alone().await else { return };
    trust(&environment).await;
    let space = environment.namespace("unsure").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let tainted = Machine::boot(&environment, &space, "tainted").await;
    let silent = Machine::boot(&environment, &space, "silent").await;
    let again = Machine::boot(&environment, &space, "again").await;
    let off = Machine::boot(&environment, &space, "off").await;
    let machines = [(&tainted, "a"), (&silent, "b"), (&again, "c"), (&off, "d")];
    let seats = join(&environment, &space, &machines).await;
    wait_until_known(&environment, 4.0).await;
    tainted.put_out_of_service().await;
    silent.fall_silent().await;
    again.create_again().await;
    again.put_out_of_service().await;
    off.fall_silent().await;
    off.put_out_of_service().await;
    // The operator has heard of the others before.
    wait_for_queue(&space, &["a", "b", "c"]).await;
    tainted.fall_silent().await;
    wait_for_queue(&space, &["b", "c"]).await;
    silent.put_out_of_service().await;
    wait_for_queue(&space, &["c"]).await;
    restore(&environment).await;
    leave(space, seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn contenders_that_came_under_the_taint_stay_until_it_is_put_on_again() {
    let Some(environment) = alone().await else { return };
    trust(&environment).await;
    let space = environment.namespace("returned").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let back = Machine::boot(&environment, &space, "back").await;
    let off = Machine::boot(&environment, &space, "off").await;
    // The machine was repaired, and nobody took the taint away.
    back.put_out_of_service().await;
    let seats = join(&environment, &space, &[(&back, "a"), (&off, "b")]).await;
    wait_until_known(&environment, 1.0).await;
    for machine in [&back, &off] {
        machine.fall_silent().await;
    }
    off.put_out_of_service().await;
    wait_for_queue(&space, &["a"]).await;
    wait_until_known(&environment, 0.0).await;
    // The operator learns that the taint is gone.
    back.put_into_service().await;
    wait_until_known(&environment, 1.0).await;
    back.put_out_of_service().await;
    eventually("a is removed, too", async || {
        let lock = space.api::<DistributedLock>().get("report").await.unwrap();
        queue(&lock).is_empty().then_some(())
    })
    .await;
    restore(&environment).await;
    leave(space, seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_lies_about_its_pod_gains_nothing_and_harms_nobody_else() {
    let Some(environment) = alone().await else { return };
    trust(&environment).await;
    let space = environment.namespace("lying").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let off = Machine::boot(&environment, &space, "off").await;
    let on = Machine::boot(&environment, &space, "on").await;
    let seats = join(&environment, &space, &[(&on, "a"), (&off, "b")]).await;
    let victim = space.api::<Pod>().get("b").await.unwrap();
    let mut honest = on.pod(&space, "c", "report").await;
    // Its own pod, on the machine that will be off; and a pod of this name, which is another one.
    honest.spec.as_mut().unwrap().node_name = Some(off.name.clone());
    let elsewhere = Seat::take(&environment, &space, "report", &honest).await;
    wait_for_queue(&space, &["a", "b", "c"]).await;
    let mut other = victim.clone();
    other.metadata.uid = Some("00000000-0000-0000-0000-000000000000".to_owned());
    let other = Seat::take(&environment, &space, "report", &other).await;
    wait_for_queue(&space, &["a", "b", "c", "b"]).await;
    // Another tenant, whose contender says that it is the victim's pod.
    let stranger = environment.namespace("stranger").await;
    stranger.lock("report", DistributedLockSpec::default()).await;
    let foreign = Seat::take(&environment, &stranger, "report", &victim).await;
    wait_for_queue(&stranger, &["b"]).await;
    // Only what is true counts: a and b.
    wait_until_known(&environment, 2.0).await;
    off.fall_silent().await;
    off.put_out_of_service().await;
    wait_for_queue(&space, &["a", "c", "b"]).await;
    wait_until_counted(&environment, 1.0).await;
    wait_for_queue(&stranger, &["b"]).await;
    restore(&environment).await;
    drop((elsewhere, other, foreign));
    stranger.leave().await;
    leave(space, seats).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_was_not_told_to_trust_the_taint_removes_nobody() {
    let Some(environment) = alone().await else { return };
    restore(&environment).await;
    let space = environment.namespace("distrusted").await;
    space.lock("report", DistributedLockSpec::default()).await;
    let off = Machine::boot(&environment, &space, "off").await;
    let on = Machine::boot(&environment, &space, "on").await;
    let seats = join(&environment, &space, &[(&off, "a")]).await;
    off.fall_silent().await;
    off.put_out_of_service().await;
    // The operator looks at the lock again, after the taint.
    let pod = on.pod(&space, "b", "report").await;
    let late = Seat::take(&environment, &space, "report", &pod).await;
    wait_for_queue(&space, &["a", "b"]).await;
    let metrics = environment.pages()[0].ask("/metrics").await.unwrap();
    assert!(!metrics.contains(FENCED), "{metrics}");
    assert!(metrics.contains(&format!("{KNOWN}0")), "{metrics}");
    drop(late);
    leave(space, seats).await;
}
