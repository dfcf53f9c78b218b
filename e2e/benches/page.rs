//! `make bench-page`: `kubectl lockkeeper ui` with a thousand locks, each with a full history, in a real browser: the time to
//! the first view, the processor time of a minute with changes, and how long the page needs to show a handoff.
//!
//! No operator runs: the benchmark writes the statuses.

#[allow(dead_code)]
#[path = "../tests/controllers/environment.rs"]
mod environment;

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use lockkeeper_crds::{DistributedLock, DistributedLockSpec};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::beside::Tenant;
use lockkeeper_product::page::{Page, used_by};
use lockkeeper_testbed::Browser;
use serde_json::json;

const LOCKS: usize = 1_000;
/// As many as a status keeps.
const HISTORY: usize = 32;
const VIEWS: usize = 10;
const HANDOFFS: usize = 50;
const BUSY: Duration = Duration::from_secs(60);
/// Between two changes of a status while the page is busy.
const BETWEEN: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let Some(environment) = environment::alone().await else {
        return;
    };
    let browser = Browser::start().expect("a browser");
    drop(environment.take_operator());
    let space = environment.namespace("page").await;
    stream::iter(0..LOCKS)
        .for_each_concurrent(8, |number| make(&space, number))
        .await;
    let page = Page::serve(environment.cluster.kubeconfig(), &space.name).expect("the page");

    let mut views: Vec<_> = (0..VIEWS).map(|_| first_view(&browser, &page)).collect();
    let shares = busy(&space, &page).await;
    let mut handoffs = Vec::new();
    for number in 0..HANDOFFS {
        handoffs.push(handoff(&space, &browser, number).await);
    }
    views.sort_unstable();
    handoffs.sort_unstable();
    println!("{LOCKS} locks with {HISTORY} former holders each\n");
    println!("| what | p50 | at most |\n|---|---|---|");
    println!(
        "| first view, {VIEWS} times | {} ms | {} ms |",
        views[VIEWS / 2].as_millis(),
        views[VIEWS - 1].as_millis()
    );
    println!(
        "| a status that is written until the page shows it, {HANDOFFS} times | {} ms | {} ms |",
        handoffs[HANDOFFS / 2].as_millis(),
        handoffs[HANDOFFS - 1].as_millis()
    );
    println!("\nProcessor time of {BUSY:?} with a change each {BETWEEN:?}, of one core:");
    for (name, share) in shares {
        println!("* {name}: {:.1} %", 100.0 * share);
    }
    drop(page);
    space.abandon().await;
}

fn name(number: usize) -> String {
    format!("lock-{number:04}")
}

async fn make(space: &Tenant, number: usize) {
    space.lock(&name(number), DistributedLockSpec::default()).await;
    write(space, number, 0).await;
}

/// Writes the status of a lock that has changed hands this many times more.
async fn write(space: &Tenant, number: usize, handoffs: usize) {
    let now = Timestamp::now().as_second();
    let at = |before: usize| {
        let second = now - i64::try_from(before).expect("it is small");
        Timestamp::from_second(second).expect("it is near").to_string()
    };
    let pod = |hold: usize| format!("report-7f9c6d5b4-{:05}", handoffs + HISTORY - hold);
    let hold = |hold: usize| {
        json!({
            "pod": pod(hold), "node": format!("node-{}", hold % 7), "contender": format!("c-lock-{hold:010}"),
            "fencingToken": 4_294_967_296_u64 + (handoffs + HISTORY - hold) as u64, "since": at(60 * hold + 5),
        })
    };
    let history: Vec<_> = (1..=HISTORY)
        .map(|number| {
            let mut past = hold(number);
            past["until"] = json!(at(60 * (number - 1) + 6));
            past["ended"] = json!("Released");
            past
        })
        .collect();
    let status = json!({
        "holders": [hold(0)], "waiting": 1, "history": history,
        "queue": [{ "pod": pod(0) + "-next", "contender": "c-lock-0000000099" }],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "Provisioned", "message": "the lock can be taken",
            "lastTransitionTime": at(0),
        }],
    });
    let api: Api<DistributedLock> = space.api();
    let patch = Patch::Merge(json!({ "status": status }));
    let written = api
        .patch_status(&name(number), &PatchParams::default(), &patch)
        .await;
    written.expect("the status is written");
}

/// The time until all locks are in the page.
fn first_view(browser: &Browser, page: &Page) -> Duration {
    browser.open("about:blank").expect("an empty page");
    let began = BootInstant::now();
    browser.open(page.url()).expect("the page");
    while browser
        .run("return document.querySelectorAll('#locks tbody tr').length")
        .expect("a number")
        != json!(LOCKS)
    {}
    BootInstant::now() - began
}

/// The time from the request to the API server until the page shows the new holder.
async fn handoff(space: &Tenant, browser: &Browser, number: usize) -> Duration {
    let held = format!(
        "return document.querySelector('[data-key$=\"/{}\"]').cells[1].textContent",
        name(number)
    );
    let before = browser.run(&held).expect("a holder");
    let began = BootInstant::now();
    write(space, number, 1_000 + number).await;
    while browser.run(&held).expect("a holder") == before {}
    BootInstant::now() - began
}

/// What the browser and the page's server use while locks change, as parts of one core.
async fn busy(space: &Tenant, page: &Page) -> Vec<(&'static str, f64)> {
    let used = || {
        [
            used_by(|stat| stat.contains("(chrom")),
            used_by(|stat| stat.starts_with(&format!("{} ", page.pid()))),
        ]
    };
    let (began, before) = (BootInstant::now(), used());
    let mut number = 0;
    while BootInstant::now() - began < BUSY {
        write(space, number % LOCKS, 100).await;
        number += 7;
        tokio::time::sleep(BETWEEN).await;
    }
    let took = (BootInstant::now() - began).as_secs_f64();
    let shares = used()
        .into_iter()
        .zip(before)
        .map(|(after, before)| (after - before) / took);
    ["the browser, all its processes", "kubectl lockkeeper ui"]
        .into_iter()
        .zip(shares)
        .collect()
}
