//! The server as a browser, another user and a page of the web meet it.

use std::collections::BTreeMap;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::super::Page;
use super::*;

/// Far longer than any answer should take.
const BOUND: Duration = Duration::from_secs(60);

struct Served {
    address: String,
    key: String,
    board: Arc<Board>,
}

async fn served(title: &str) -> Served {
    served_with(title, None).await
}

async fn served_with(title: &str, renewals: Option<Renewals>) -> Served {
    let words = Words {
        program: "lockkeeper ui",
        who: "Who",
        place: "Node",
        filter: "lock or holder",
        past: "Seen since </script>".to_owned(),
        note: "A <note>.".to_owned(),
    };
    let page = Page::bind(0, title.to_owned(), words, renewals).await.unwrap();
    let site = &page.site;
    let served = Served {
        address: site.address.clone(),
        key: site.key.to_string(),
        board: page.board(),
    };
    assert!(
        page.greeting()
            .contains(&format!(": http://{}/?key={}\n", served.address, served.key))
    );
    tokio::spawn(page.serve());
    served
}

impl Served {
    /// A connection that has asked for this.
    async fn asked(&self, method: &str, target: &str, host: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.unwrap();
        let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The whole answer.
    async fn answer(&self, method: &str, target: &str, host: &str) -> String {
        let mut answer = String::new();
        let mut stream = self.asked(method, target, host).await;
        let read = tokio::time::timeout(BOUND, stream.read_to_string(&mut answer));
        read.await.expect("the server answers").unwrap();
        answer
    }

    fn with_key(&self, path: &str) -> String {
        format!("{path}?key={}", self.key)
    }
}

fn is(answer: &str, status: u16) -> bool {
    answer.starts_with(&format!("HTTP/1.1 {status} "))
}

#[tokio::test]
async fn who_has_the_printed_address_gets_the_page_and_nobody_else_gets_anything() {
    let site = served("Locks of <b>shop</b>").await;
    let page = site.answer("GET", &site.with_key("/"), &site.address).await;
    assert!(is(&page, 200), "{page}");
    assert!(
        page.contains("<h1>Locks of &lt;b&gt;shop&lt;/b&gt;</h1>"),
        "{page}"
    );
    assert!(!page.contains("{{"), "{page}");
    assert!(
        page.contains("A &lt;note&gt;.") && page.contains("Seen since \\u003c/script>"),
        "{page}"
    );
    let local = site.address.replace("127.0.0.1", "localhost");
    assert!(is(&site.answer("GET", &site.with_key("/"), &local).await, 200));
    for path in ["/", "/events"] {
        for target in [path.to_owned(), format!("{path}?key=0")] {
            let refused = site.answer("GET", &target, &site.address).await;
            assert!(
                is(&refused, 403) && refused.contains("The key is missing or wrong"),
                "{refused}"
            );
        }
        // The name of an attacker's page that was made to lead here.
        let refused = site.answer("GET", &site.with_key(path), "example.org").await;
        assert!(is(&refused, 403), "{refused}");
    }
    assert!(is(
        &site.answer("POST", &site.with_key("/"), &site.address).await,
        405
    ));
    assert!(is(
        &site.answer("GET", &site.with_key("/other"), &site.address).await,
        404
    ));
}

#[tokio::test]
async fn the_page_takes_nothing_from_elsewhere_and_is_in_no_frame() {
    let site = served("Locks").await;
    let page = site.answer("GET", &site.with_key("/"), &site.address).await;
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    let head = head.to_lowercase();
    assert!(
        head.contains("default-src 'none'") && head.contains("frame-ancestors 'none'"),
        "{head}"
    );
    assert!(head.contains("referrer-policy: no-referrer"), "{head}");
    for word in ["http:", "https:", "//cdn", "@import", "url("] {
        assert!(!body.contains(word), "{word}");
    }
}

/// Reads events up to one that has this text.
async fn event(events: &mut BufReader<TcpStream>, part: &str) -> serde_json::Value {
    let read = async {
        loop {
            let mut line = String::new();
            assert!(
                events.read_line(&mut line).await.unwrap() > 0,
                "the server goes on"
            );
            if let Some(data) = line.strip_prefix("data: ").filter(|data| data.contains(part)) {
                return serde_json::from_str(data).unwrap();
            }
        }
    };
    tokio::time::timeout(BOUND, read)
        .await
        .expect("the server tells it")
}

#[tokio::test]
async fn a_page_that_is_open_hears_of_all_locks_and_then_of_each_change() {
    let site = served("Locks").await;
    let lock = |key: &str, token: u8| (key.to_owned(), format!("{{\"key\":\"{key}\",\"token\":{token}}}"));
    site.board
        .replace(BTreeMap::from([lock("shop/a", 1), lock("shop/b", 1)]));
    let page = site.answer("GET", &site.with_key("/"), &site.address).await;
    let (_, seal) = page.split_once("const SEAL = \"").unwrap();
    let mut events = BufReader::new(site.asked("GET", &site.with_key("/events"), &site.address).await);
    let mut head = String::new();
    while !head.contains("data: ") {
        assert!(events.read_line(&mut head).await.unwrap() > 0, "{head}");
    }
    // The stream begins with what only the page and its own server know.
    assert!(
        head.ends_with(&format!("event: seal\ndata: {}\n", &seal[..32])),
        "{head}"
    );
    let first = event(&mut events, "shop/a").await;
    assert_eq!(first["all"], true);
    assert_eq!(first["changed"].as_array().unwrap().len(), 2);
    let (key, json) = lock("shop/b", 2);
    site.board.set(key, json);
    let next = event(&mut events, "shop/b").await;
    assert_eq!(
        (&next["all"], &next["changed"]),
        (&false.into(), &serde_json::json!([{"key": "shop/b", "token": 2}]))
    );
    site.board.remove("shop/a");
    let gone = event(&mut events, "shop/a").await;
    assert_eq!(gone["gone"], serde_json::json!(["shop/a"]));
    site.board.trouble("a \"sentence\"\nof two lines".to_owned());
    let trouble = event(&mut events, "sentence").await;
    assert_eq!(trouble["trouble"], "a \"sentence\"\nof two lines");
}

#[tokio::test]
async fn the_renewals_of_a_lock_are_told_by_its_number_to_who_has_the_key_and_knows_the_seal() {
    let site = served_with("Locks", Some(Arc::new(|number| format!("{{\"c\":{number}}}")))).await;
    let page = site.answer("GET", &site.with_key("/"), &site.address).await;
    let (_, seal) = page.split_once("const SEAL = \"").unwrap();
    let target = site.with_key("/renewals");
    let told = site
        .answer("GET", &format!("{target}&lock=7"), &site.address)
        .await;
    let (_, body) = told.split_once("\r\n\r\n").unwrap();
    let told: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(told, serde_json::json!({"seal": seal[..32], "holders": {"c": 7}}));
    for (target, status) in [
        (target.clone(), 400),
        (format!("{target}&lock=x"), 400),
        ("/renewals?key=0&lock=7".to_owned(), 403),
    ] {
        let refused = site.answer("GET", &target, &site.address).await;
        assert!(is(&refused, status), "{target}: {refused}");
    }
    // Where nothing is known of renewals.
    let other = served("Locks").await;
    let refused = other
        .answer("GET", &(other.with_key("/renewals") + "&lock=7"), &other.address)
        .await;
    assert!(is(&refused, 404), "{refused}");
}
