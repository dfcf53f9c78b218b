//! The page of `kubectl lockkeeper ui`, in a real browser.

use lockkeeper_product::beside::conditions::{holders, waiting};
use lockkeeper_product::page::{Page, ROWS};
use lockkeeper_testbed::browser::key;
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::{Browser, Unsupported};
use serde_json::{Value, json};

use crate::contender::Contender;
use crate::environment::shared;

/// What has the focus, and the story that is open.
const FOCUS: &str = "return [document.activeElement.textContent, document.activeElement.id,
    document.querySelector('#story h2')?.textContent ?? null]";

/// What the page's own script makes of statuses that do not tell all: the kinds of the parts of the last hour, and whether the
/// last thing that is drawn reaches the end of the bar.
const KINDS: &str = "const now = Date.now(), ago = minutes => new Date(now - 6e4 * minutes).toISOString();
    const kinds = (status, mode = 'Exclusive') => parts({ mode, maxHolders: 1, status }, now - 36e5, now).map(part => part.kind);
    const past = { pod: 'a', since: ago(20), until: ago(10) };
    const followed = { type: 'Held', status: 'True' }, lost = { type: 'Held', status: 'Unknown', lastTransitionTime: ago(5) };
    const short = [...Array(32).keys()].map(n => ({ since: ago(n + 2), until: ago(n + 1.02) }));
    const drawn = gradients(parts({ mode: 'Exclusive', maxHolders: 1, status: { holders: [{ since: ago(1) }], history: short } },
        now - 864e5, now), now - 864e5, now);
    return [
        kinds({ history: [past], holders: [{ pod: 'b' }] }),
        kinds({ history: [past], holders: [{ pod: 'b', since: ago(-30) }] }),
        kinds({ history: [past], holders: [{ pod: 'b', since: '1970-01-01T00:00:00Z' }] }),
        kinds({ history: [{ pod: 'b', until: ago(5) }, past], holders: [{ pod: 'c', since: ago(5) }] }),
        kinds({ history: [past], holders: [], conditions: [followed] }),
        kinds({ history: [past], holders: [{ pod: 'b', since: ago(10) }], conditions: [lost] }),
        [drawn.endsWith('100.00%, transparent 100.00%)') ? 'drawn to the end' : drawn],
    ]";

/// In this order: a holder that does not say since when; one whose clock is ahead; one who lies; a former holder that did not
/// say since when; nobody; a lock that nobody follows any more; a hold after many that were too short to draw.
const EXPECTED: [&[&str]; 7] = [
    &["held", "unknown"],
    &["held", "unknown"],
    &["held", "held"],
    &["held", "unknown", "held"],
    &["held", "nobody"],
    &["held", "held", "unknown"],
    &["drawn to the end"],
];

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
    let timeline = shown[0]["timeline"].as_str().unwrap();
    assert!(
        timeline.starts_with("1 hold, no gap, nothing remembered before "),
        "{timeline}"
    );
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

    assert_eq!(browser.run(KINDS).unwrap(), json!(EXPECTED));

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
