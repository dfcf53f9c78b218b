//! `make bench-ui`: `lockkeeper ui` with a thousand locks that are renewed as often as by default, in a real browser: the time
//! to the first view, and the processor time of a minute in which nothing but renewals happens, with and without an open story.
//!
//! `--locks=N` and `--seconds=N` for a shorter run. One client stands in for all holders.

use std::time::Duration;

use futures_util::future::try_join_all;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::page::{Page, used_by};
use lockkeeper_testbed::ensemble::{Config, block_on, connector};
use lockkeeper_testbed::{Browser, Ensemble};
use serde_json::json;
use zookeeper_client::{Acls, Client, CreateMode};

/// Between two renewals of a holder with the default times.
const RENEWAL: Duration = Duration::from_millis(1_062);

/// Between two writes of the client that stands in for the holders: each renews its part of them.
const TURN: Duration = Duration::from_millis(10);

/// What a holder says about itself.
const DATA: &[u8] =
    br#"{"v":1,"state":"held","host":"db-1","since":"2026-01-01T00:00:00Z","stopBudgetMillis":3000,"leaseMillis":8500}"#;

fn main() {
    let argument = |name: &str, default: usize| {
        let given = std::env::args().find_map(|word| word.strip_prefix(name)?.parse().ok());
        given.unwrap_or(default)
    };
    let (locks, seconds) = (argument("--locks=", 1_000), argument("--seconds=", 60));
    // The page is measured, and not the disk.
    let ensemble = Ensemble::start(Config {
        servers: 1,
        java_arguments: vec!["-Dzookeeper.forceSync=no".to_owned()],
        ..Config::default()
    })
    .expect("a server");
    std::thread::scope(|scope| {
        let (made, is_made) = std::sync::mpsc::channel();
        let (end, ended) = tokio::sync::oneshot::channel();
        let ensemble = &ensemble;
        scope.spawn(move || {
            let held = block_on(ensemble.observer(), || hold(ensemble, locks, made, ended));
            held.expect("a host").expect("the locks are held");
        });
        is_made.recv().expect("the locks are made");
        // A browser reaches only its own host.
        let measured = ensemble
            .observer()
            .run(|| measure(ensemble, locks, Duration::from_secs(seconds as u64)));
        let _ = end.send(());
        measured.expect("a host");
    });
}

/// Makes the locks, and renews them until it is told to end.
async fn hold(
    ensemble: &Ensemble,
    locks: usize,
    made: std::sync::mpsc::Sender<()>,
    ended: tokio::sync::oneshot::Receiver<()>,
) -> Result<(), zookeeper_client::Error> {
    let client = connector().connect(&ensemble.connect_string()).await?;
    let mut holders = Vec::new();
    for number in 0..locks {
        holders.push(make(&client, number).await?);
    }
    let _ = made.send(());
    // As many as have to renew in one turn or more.
    let per_turn = locks as f64 * TURN.as_secs_f64() / RENEWAL.as_secs_f64();
    let each = per_turn.ceil() as usize;
    let renewing = async {
        let mut turns = tokio::time::interval(TURN.mul_f64(each as f64 / per_turn));
        for number in (0..).step_by(each) {
            turns.tick().await;
            let part =
                (number..number + each).map(|number| client.set_data(&holders[number % locks], DATA, None));
            try_join_all(part).await?;
        }
        Ok(())
    };
    tokio::select! {
        renewed = renewing => renewed,
        _ = ended => Ok(()),
    }
}

/// A lock with a holder, whose path it returns.
async fn make(client: &Client, number: usize) -> Result<String, zookeeper_client::Error> {
    let root = format!("/page/lock-{number:04}");
    let all = Acls::anyone_all();
    client
        .mkdir(&root, &CreateMode::Persistent.with_acls(all))
        .await?;
    let prefix = format!("{root}/_c_00000000-0000-4000-8000-{number:012}-lock-");
    let (_, sequence) = client
        .create(&prefix, DATA, &CreateMode::EphemeralSequential.with_acls(all))
        .await?;
    Ok(format!("{prefix}{sequence}"))
}

fn measure(ensemble: &Ensemble, locks: usize, time: Duration) {
    let browser = Browser::start().expect("a browser");
    let connect = ensemble.connect_string();
    let page = Page::of_ensemble(&["--connect", &connect, "--lock", "/page/*"]).expect("the page");
    let began = BootInstant::now();
    browser.open(page.url()).expect("the page");
    let rows = "return document.querySelectorAll('#locks tbody tr').length";
    while browser.run(rows).expect("a number") != json!(locks) {}
    println!(
        "{locks} locks, all renewed each {RENEWAL:?}\n\nFirst view: {} ms\n",
        (BootInstant::now() - began).as_millis()
    );
    println!(
        "| processor time of {time:?}, of one core | the browser, all its processes | lockkeeper ui |\n|---|---|---|"
    );
    let open = "document.querySelector('#locks tbody button').click()";
    for (name, script) in [("no story is open", "return 0"), ("a story is open", open)] {
        browser.run(script).expect("it is done");
        let [view, server] = used(&page, time);
        println!("| {name} | {:.1} % | {:.1} % |", 100.0 * view, 100.0 * server);
    }
    let story = browser.run("return document.getElementById('story').innerText");
    let story = story.expect("a text").to_string();
    assert!(story.contains("may be taken over at the earliest in"), "{story}");
}

/// What browser and server use meanwhile, as parts of one core.
fn used(page: &Page, time: Duration) -> [f64; 2] {
    let used = || {
        [
            used_by(|stat| stat.contains("(chrom")),
            used_by(|stat| stat.starts_with(&format!("{} ", page.pid()))),
        ]
    };
    let (began, before) = (BootInstant::now(), used());
    std::thread::sleep(time);
    let (took, after) = ((BootInstant::now() - began).as_secs_f64(), used());
    [0, 1].map(|one| (after[one] - before[one]) / took)
}
