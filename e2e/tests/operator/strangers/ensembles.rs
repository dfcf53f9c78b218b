//! Ensembles that a tenant names in a lock: the hosts that are allowed, and the harm that a hostile server
//! can do.

use std::sync::atomic::Ordering;

use lockkeeper_testbed::eventually::eventually;
use serde_json::{Value, json};

use super::hostile::{Hostile, Kind};
use super::limited::{LIMIT, Limited, condition, path};

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_ensemble_ends_its_own_session_alone_whatever_it_sends() {
    let kinds = [
        Kind::Streams,
        Kind::Counts,
        Kind::Crowds,
        Kind::Trickles,
        Kind::Silent,
        Kind::Stalls,
    ];
    let mut servers = Vec::new();
    for kind in kinds {
        servers.push((kind, Hostile::start(kind).await));
    }
    let hosts: Vec<_> = servers
        .iter()
        .map(|(_, server)| server.address.to_string())
        .collect();
    let mut limited = Limited::start(&[
        "--other-ensembles",
        &hosts.join(","),
        "--other-ensembles-sessions",
        "12",
    ])
    .await;
    limited.lock("before", None);
    limited.wait_until_ready("before").await;
    for (kind, server) in &servers {
        limited.lock(&format!("{kind:?}").to_lowercase(), Some(server));
    }
    for (kind, _) in &servers {
        let name = format!("{kind:?}").to_lowercase();
        let is_out = |lock: &Value| condition(lock, "EnsembleReachable").0 == "False";
        // Servers that send too little to judge count as unreachable, as servers that are down do.
        let lock = match kind {
            Kind::Streams | Kind::Counts | Kind::Crowds | Kind::Stalls => {
                let is_unusable =
                    |lock: &Value| is_out(lock) && condition(lock, "Ready").1 == "EnsembleUnusable";
                limited
                    .wait_for(&name, "says that its ensemble is unusable", is_unusable)
                    .await
            }
            Kind::Churns => unreachable!("it is no server of this test"),
            Kind::Trickles | Kind::Silent => limited.wait_for(&name, "is out of reach", is_out).await,
        };
        println!("{kind:?}: {}", condition(&lock, "EnsembleReachable").2);
    }
    // The operator connects to each of these servers again and again.
    let [(_, streaming), (_, counting), ..] = &servers[..] else {
        unreachable!()
    };
    eventually("they are asked again", async || {
        (streaming.connections() >= 3 && counting.connections() >= 3).then_some(())
    })
    .await;
    println!(
        "{} MiB were taken in of what was streamed",
        streaming.sent() >> 20
    );
    // Locks in the operator's own ensemble are not affected.
    limited.lock("after", None);
    limited.wait_until_ready("after").await;
    assert_eq!(limited.has_ended(), None, "the same process");
    let [own, childrens] = limited.peaks.each_ref().map(|peak| peak.load(Ordering::Relaxed));
    println!("most memory: {own} KiB of the operator, {childrens} KiB of a process of a session");
    assert!(childrens > 0, "there were such processes");
    assert!(
        own + 4 * childrens < LIMIT >> 10,
        "{own} and four times {childrens} KiB"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_to_a_host_that_is_not_on_the_list_and_no_secret_is_read_for_it() {
    let (listed, stranger) = (
        Hostile::start(Kind::Silent).await,
        Hostile::start(Kind::Silent).await,
    );
    let mut limited = Limited::start(&["--other-ensembles", &listed.address.to_string()]).await;
    limited.lock("stranger", Some(&stranger));
    let is_refused = |lock: &Value| condition(lock, "Ready").1 == "EnsembleNotAllowed";
    let lock = limited.wait_for("stranger", "is refused", is_refused).await;
    let (status, _, message) = condition(&lock, "Ready");
    assert_eq!(status, "False");
    let named = format!("add {} to zookeeper.otherEnsembles.hosts", stranger.address);
    assert!(message.contains(&named), "{message}");
    // The operator handles the lock with the allowed server after it.
    limited.lock("listed", Some(&listed));
    let is_out = |lock: &Value| condition(lock, "EnsembleReachable").1 == "Disconnected";
    let secret = "GET /api/v1/namespaces/shop/secrets/team";
    assert!(
        !limited.objects.seen().iter().any(|seen| seen == secret),
        "before any host was allowed"
    );
    limited.wait_for("listed", "was tried", is_out).await;
    assert!(limited.objects.seen().iter().any(|seen| seen == secret));
    assert!(listed.connections() > 0);
    assert_eq!(stranger.connections(), 0);
    // Its deletion does not wait for the ensemble.
    let mut lock = limited.objects.get(&path("stranger"));
    assert_eq!(lock["metadata"]["finalizers"], Value::Null);
    lock["metadata"]["finalizers"] = json!(["lockkeeper.io/queue"]);
    lock["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    limited.objects.put(&path("stranger"), lock);
    let is_let_go = |lock: &Value| {
        lock["metadata"]["finalizers"]
            .as_array()
            .is_none_or(Vec::is_empty)
    };
    limited.wait_for("stranger", "is let go", is_let_go).await;
}
