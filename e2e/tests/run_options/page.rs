//! The page of `lockkeeper ui`, in a real browser.

use lockkeeper_product::page::{Page, ROWS};
use lockkeeper_testbed::browser::key;
use lockkeeper_testbed::ensemble::Config;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Browser, Ensemble, Unsupported};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{BOUND, Run, client, ensemble, wait_for_contenders};

/// The command of a holder.
const SLEEP: [&str; 2] = ["sleep", "1000"];

/// What the page's own script makes of times in which it did not see the lock: the kinds of the parts of the last hour.
const KINDS: &str = "const now = Date.now(), ago = minutes => new Date(now - 6e4 * minutes).toISOString();
    const past = { pod: 'a', since: ago(20), until: ago(10), ended: 'not seen' };
    const kinds = status => parts({ mode: 'Exclusive', maxHolders: 1, status }, now - 36e5, now).map(part => part.kind);
    return [
        kinds({ history: [past], holders: [{ pod: 'b', since: ago(5) }], unseen: [{ from: ago(10), until: ago(8) }] }),
        kinds({ history: [past], holders: [{ pod: 'b', since: ago(5) }], unseen: [{ from: ago(9), until: ago(8) }] }),
        kinds({ holders: [{ pod: 'b', since: ago(30) }], unseen: [{ from: ago(10), until: ago(8) }] }),
        kinds({ holders: [{ pod: 'b', since: ago(30) }], unseen: [{ from: ago(10), until: ago(8) }, { from: ago(1) }] }),
    ]";

/// In this order: a holder whose end was not seen; one that was seen to leave before; one that has held all the time; a lock
/// that is not seen now.
const EXPECTED: [&[&str]; 4] = [
    &["held", "unknown", "nobody", "held"],
    &["held", "nobody", "unknown", "nobody", "held"],
    &["held"],
    &["held", "unknown"],
];

/// What a page shows, in a browser.
struct Shown<'a>(&'a Browser);

impl Shown<'_> {
    /// Waits until the row of a lock is like this.
    fn row(&self, lock: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let found = wait_for(BOUND, || {
            last = self.0.run(ROWS).unwrap();
            let row = last.as_array()?.iter().find(|row| row["lock"] == lock)?;
            is_it(row).then(|| row.clone())
        });
        found.unwrap_or_else(|| panic!("no {what}: {last}"))
    }

    /// The text of an element that a user sees.
    fn text(&self, id: &str) -> String {
        let script = format!("return document.getElementById('{id}').innerText");
        self.0.run(&script).unwrap().as_str().unwrap().to_owned()
    }

    /// Waits until such a text has something.
    fn says(&self, id: &str, part: &str) -> String {
        let mut last = String::new();
        let said = wait_for(BOUND, || {
            last = self.text(id);
            last.contains(part).then(|| last.clone())
        });
        said.unwrap_or_else(|| panic!("{id} does not say {part}: {last}"))
    }

    fn open(&self, lock: &str) {
        let script = format!("document.querySelector('[data-key=\"{lock}\"] button').focus()");
        self.0.run(&script).unwrap();
        self.0.press(&[key::ENTER]).unwrap();
    }
}

/// The seconds that a story counts down.
fn left(story: &str) -> Option<f64> {
    let (_, rest) = story.split_once("may be taken over at the earliest in ")?;
    rest[..rest.find('s')?].parse().ok()
}

#[test]
fn the_page_shows_an_ensembles_locks_counts_leases_down_follows_a_handoff_and_says_when_it_sees_nothing() {
    let config = Config {
        servers: 1,
        ..Config::default()
    };
    let ensemble = Ensemble::start(config).unwrap();
    // A browser reaches only its own host.
    ensemble.observer().run(|| see(&ensemble)).unwrap();
}

fn see(ensemble: &Ensemble) {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(error) if error.is::<Unsupported>() => return lockkeeper_skip::skip(error),
        Err(error) => panic!("{error:#}"),
    };
    let (lock, session) = ("/page/report", "/page/session");
    let mut a = Run::start(ensemble, "page-a", lock, &[], &SLEEP);
    wait_for_contenders(ensemble, lock, 1);
    let mut b = Run::start(ensemble, "page-b", lock, &[], &SLEEP);
    wait_for_contenders(ensemble, lock, 2);
    let connect = ensemble.connect_string();
    let page = Page::of_ensemble(&["--connect", &connect, "--lock", "/page/*"]).unwrap();
    browser.open(page.url()).unwrap();
    let shown = Shown(&browser);

    let host = rustix::system::uname().nodename().to_str().unwrap().to_owned();
    let row = shown.row(lock, "row with a as holder", |row| {
        row["held"] == host && row["waiting"] == "1"
    });
    let timeline = row["timeline"].as_str().unwrap();
    assert!(
        timeline.starts_with("1 hold, no gap, nothing remembered before "),
        "{timeline}"
    );
    // A lock that is made while the page is open.
    let off = Run::start(
        ensemble,
        "page-off",
        session,
        &["--lease-duration", "off"],
        &SLEEP,
    );
    shown.row(session, "row of a new lock", |row| row["held"] == host);
    shown.says("summary", "2 locks: 2 held, 0 held by nobody");
    assert_eq!(browser.run(KINDS).unwrap(), json!(EXPECTED));
    // One that may not be read.
    let folder = tempfile::tempdir().unwrap();
    let auth = folder.path().join("auth");
    std::fs::write(&auth, "page:secret\n").unwrap();
    let options = ["--auth-file", auth.to_str().unwrap()];
    let _secret = Run::start(ensemble, "page-hidden", "/page/hidden", &options, &SLEEP);
    shown.says(
        "left-out",
        "Not shown: cannot read /page/hidden: no right to do this",
    );

    // The lease counts down, and each renewal lets it begin anew.
    shown.open(lock);
    let mut counted: Vec<f64> = Vec::new();
    wait_for(BOUND, || {
        counted.extend(left(&shown.text("story")));
        let falls = counted.windows(2).any(|two| two[1] < two[0]);
        let rises = counted.windows(2).any(|two| two[1] > two[0]);
        (falls && rises).then_some(())
    })
    .unwrap_or_else(|| panic!("{counted:?} is no countdown"));
    assert!(
        counted.iter().all(|left| (0.0..=8.5).contains(left)),
        "{counted:?}"
    );
    let story = shown.text("story");
    assert!(
        story.contains("renewed ") && story.contains("8500ms") | story.contains("8.5s"),
        "{story}"
    );
    browser.press(&[key::ESCAPE]).unwrap();
    shown.open(session);
    shown.says("story", "its session decides");
    browser.press(&[key::ESCAPE]).unwrap();

    // A handoff.
    shown.open(lock);
    let (code, text) = client(&["handoff", "--connect", &connect, "--lock", lock]);
    assert_eq!(code, 0, "{text}");
    let row = shown.row(lock, "second hold", |row| {
        row["timeline"].as_str().unwrap().starts_with("2 holds")
    });
    assert_eq!(
        (&row["held"], &row["waiting"]),
        (&host.clone().into(), &"1".into())
    );
    let story = shown.says("story", "left the queue");
    assert!(
        story.contains("Former holders, as this page has seen them since 20"),
        "{story}"
    );

    // Nobody holds, and then somebody does again.
    for run in [&mut a, &mut b] {
        run.signal(Signal::TERM);
        run.wait();
    }
    shown.row(lock, "lock that nobody holds", |row| {
        row["held"] == "nobody" && row["waiting"] == "0"
    });
    let _c = Run::start(ensemble, "page-c", lock, &[], &SLEEP);
    let row = shown.row(lock, "holder after a gap", |row| row["held"] == host);
    let timeline = row["timeline"].as_str().unwrap();
    assert!(
        timeline.contains("gap") && !timeline.contains("no gap"),
        "{timeline}"
    );

    // The ensemble is away: what is shown is doubted. It is back: it is believed again.
    ensemble.kill(0);
    shown.says("trouble", "What follows may be over");
    let row = shown.row(lock, "doubt", |row| row["state"] == "not followed");
    assert!(
        row["timeline"].as_str().unwrap().contains("some of it unknown"),
        "{row}"
    );
    ensemble.restart(0).unwrap();
    shown.row(session, "row that is followed again", |row| row["state"] == "-");
    wait_for(BOUND, || shown.text("trouble").is_empty().then_some(())).expect("the trouble is over");

    // Its port is taken, and its end is told.
    let port = page.url().rsplit(':').next().unwrap().split('/').next().unwrap();
    let (code, text) = client(&["ui", "--connect", &connect, "--port", port]);
    assert_eq!(
        (code, text.contains("cannot listen at 127.0.0.1:")),
        (73, true),
        "{text}"
    );
    assert_eq!(page.interrupt().unwrap().code(), Some(0));
    shown.says("trouble", "lockkeeper ui has ended; start it again");
    drop(off);
}

#[test]
fn a_page_that_could_not_show_anything_is_not_begun() {
    let ensemble = ensemble();
    let folder = tempfile::tempdir().unwrap();
    let auth = folder.path().join("auth");
    std::fs::write(&auth, "page:secret\n").unwrap();
    let secret = "/page-secret/lock";
    let options = ["--auth-file", auth.to_str().unwrap()];
    let _secret = Run::start(&ensemble, "page-secret", secret, &options, &SLEEP);
    let connect = ensemble.connect_string();
    let ask = |command| {
        let words = [command, "--connect", &connect, "--lock", secret];
        ensemble.observer().run(|| client(&words)).unwrap()
    };
    wait_for(BOUND, || (ask("list").0 == 77).then_some(())).expect("it is there and secret");
    let (code, text) = ask("ui");
    assert_eq!(code, 77, "{text}");
    assert!(
        text.contains(&format!("left out: cannot read {secret}: no right to do this")),
        "{text}"
    );
    // No server.
    let (code, text) = client(&["ui", "--connect", "127.0.0.1:1"]);
    assert_eq!(code, 69, "{text}");
    assert!(
        text.contains("no server of --connect 127.0.0.1:1 answers"),
        "{text}"
    );
}
