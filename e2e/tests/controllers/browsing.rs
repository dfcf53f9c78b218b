//! The page of `kubectl lockkeeper ui`, in a real browser.

use lockkeeper_product::beside::conditions::{holders, waiting};
use lockkeeper_product::page::Page;
use lockkeeper_testbed::browser::key;
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::{Browser, Unsupported};
use serde_json::{Value, json};

use crate::contender::Contender;
use crate::environment::shared;

/// The rows of the page: lock, holders, waiting, state, and the timeline in words.
const ROWS: &str = "return [...document.querySelectorAll('#locks tbody tr')].map(row => ({
    lock: row.querySelector('button').textContent,
    held: row.cells[1].textContent,
    waiting: row.cells[3].textContent,
    timeline: row.querySelector('[role=img]').getAttribute('aria-label'),
    state: row.cells[5].textContent,
}))";

/// What has the focus, and the story that is open.
const FOCUS: &str = "return [document.activeElement.textContent, document.activeElement.id,
    document.querySelector('#story h2')?.textContent ?? null]";

async fn rows(browser: &Browser, what: &str, is_it: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(what, async || {
        let rows = browser.run(ROWS).unwrap().as_array().cloned().unwrap_or_default();
        is_it(&rows).then_some(rows)
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_what_the_api_server_has_follows_a_handoff_and_is_used_by_keyboard() {
    let Some(environment) = shared().await else { return };
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(error) if error.is::<Unsupported>() => return lockkeeper_skip::skip(error),
        Err(error) => panic!("{error:#}"),
    };
    let space = environment.namespace("page").await;
    let a = Contender::hold(&environment, &space).await;
    let b = space.pod("b", "report").await;
    let b = Contender::join(&environment, &space, "report", &b).await;
    space
        .wait_for_lock("report", "b waits", |lock| waiting(lock) == ["b"])
        .await;
    let page = Page::serve(environment.cluster.kubeconfig(), &space.name).unwrap();
    browser.open(page.url()).unwrap();
    let lock = format!("{}/report", space.name);
    let shown = rows(&browser, "a row with a as holder", |rows| {
        rows.len() == 1 && rows[0]["held"] == "a on n1" && rows[0]["waiting"] == "1"
    })
    .await;
    assert_eq!(shown[0]["lock"], json!(lock));
    assert_eq!(shown[0]["state"], "ready");
    assert_eq!(shown[0]["timeline"], "1 hold, no gap");
    let summary = browser
        .run("return document.getElementById('summary').textContent")
        .unwrap();
    assert_eq!(summary, "1 lock: 1 held, 0 held by nobody");

    // The first thing that Tab reaches after the controls is the lock.
    browser.run("document.getElementById('span').focus()").unwrap();
    browser.press(&[key::TAB]).unwrap();
    assert_eq!(browser.run(FOCUS).unwrap(), json!([lock, "", null]));
    browser.press(&[key::ENTER]).unwrap();
    let focus = browser.run(FOCUS).unwrap();
    assert_eq!((&focus[1], &focus[2]), (&json!("story"), &json!(lock)));

    a.leave().await;
    space
        .wait_for_lock("report", "b holds", |lock| holders(lock) == ["b"])
        .await;
    let shown = rows(&browser, "a row with b as holder", |rows| {
        rows[0]["held"] == "b on n1"
    })
    .await;
    assert_eq!(shown[0]["waiting"], "0");
    let timeline = shown[0]["timeline"].as_str().unwrap();
    assert!(timeline.starts_with("2 holds, "), "{timeline}");
    // The story that is open has heard of it too.
    let story = browser
        .run("return document.getElementById('story').innerText")
        .unwrap();
    let story = story.as_str().unwrap();
    assert!(
        story.contains("Released") && story.contains("Former holders"),
        "{story}"
    );

    browser.press(&[key::ESCAPE]).unwrap();
    assert_eq!(browser.run(FOCUS).unwrap(), json!([lock, "", null]));
    b.leave().await;
    rows(&browser, "a lock that nobody holds", |rows| {
        rows[0]["held"] == "nobody"
    })
    .await;

    drop(page);
    let trouble = eventually("a page that says that its server is gone", async || {
        let told = browser
            .run("return document.getElementById('trouble').innerText")
            .unwrap();
        told.as_str().filter(|told| !told.is_empty()).map(str::to_owned)
    });
    assert!(trouble.await.contains("start it again"));
    space.leave().await;
}
