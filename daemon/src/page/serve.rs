//! The page's server: on 127.0.0.1, for who has the key.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::board::{Board, News};
use super::key::Key;
use super::{Renewals, Words};

/// Connections at once; a browser has six to one server, and each open page keeps one.
const CONNECTIONS: usize = 64;

/// Longest time until a request's head is complete.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// Longest head of a request, in bytes; the least that hyper accepts.
const HEAD_BYTES: usize = 8 * 1024;

/// Changes of this time are told together: an eye follows no faster, and a thousand locks may change at once.
const TOGETHER: Duration = Duration::from_millis(100);

/// After this time without news the page gets a sign of life; it says so when none comes. And the server notices if nobody
/// reads any more.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// A sign of life that scripts see: they do not see comments.
const ALIVE: &str = "event: alive\ndata:\n\n";

const PAGE: &str = include_str!("site/index.html");
const STYLE: &str = include_str!("site/page.css");
const SCRIPTS: [&str; 5] = [
    include_str!("site/timeline.js"),
    include_str!("site/rows.js"),
    include_str!("site/renewals.js"),
    include_str!("site/story.js"),
    include_str!("site/page.js"),
];

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What is served.
#[derive(Clone)]
pub(super) struct Site {
    /// What the page shows, for people.
    pub(super) title: String,
    pub(super) words: Words,
    /// Host and port that a request has to name.
    pub(super) address: String,
    pub(super) key: Key,
    /// Is in the page and begins each stream of events. Another user who gets the port when this server has ended does not
    /// know it, so a page that is still open does not believe that server.
    pub(super) seal: Key,
    pub(super) board: Arc<Board>,
    pub(super) renewals: Option<Renewals>,
}

/// Serves for ever.
pub(super) async fn serve(listener: TcpListener, site: Site) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, or the client has gone already.
            tokio::time::sleep(TOGETHER).await;
            continue;
        };
        let site = site.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| {
                let answer = site.answer(&request);
                async move { Ok::<_, Infallible>(answer) }
            });
            let mut server = http1::Builder::new();
            server
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .max_buf_size(HEAD_BYTES)
                .keep_alive(false);
            // An error is the client's: it went away, or does not speak HTTP.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

impl Site {
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        if !self.is_named(request) {
            // A page of the web whose name was made to lead here (DNS rebinding).
            return text(
                StatusCode::FORBIDDEN,
                "This server answers only under the address that it has printed.\n",
            );
        }
        if request.method() != Method::GET {
            return text(StatusCode::METHOD_NOT_ALLOWED, "Only GET is answered.\n");
        }
        let path = request.uri().path();
        let query = request.uri().query();
        let answer: &dyn Fn() -> Response<Body> = match (path, &self.renewals) {
            ("/", _) => &|| self.page(),
            ("/events", _) => &|| self.events(),
            ("/renewals", Some(renewals)) => &|| self.renewals(renewals, query),
            _ => return text(StatusCode::NOT_FOUND, "There is no such page.\n"),
        };
        if !self.key.is_in(query) {
            return text(
                StatusCode::FORBIDDEN,
                format!(
                    "The key is missing or wrong: open the address that `{}` has printed.\n",
                    self.words.program
                ),
            );
        }
        answer()
    }

    /// Whether a request names this server as the printed address does, or by the usual name of this machine.
    fn is_named(&self, request: &Request<Incoming>) -> bool {
        let host = request
            .headers()
            .get(header::HOST)
            .and_then(|host| host.to_str().ok());
        let port = self.address.rsplit(':').next().unwrap_or_default();
        host.is_some_and(|host| host == self.address || host == format!("localhost:{port}"))
    }

    fn page(&self) -> Response<Body> {
        // The key serves as the nonce too: who knows one has the page with the other.
        let words = serde_json::to_string(&self.words).expect("words are texts");
        let page = PAGE
            .replace("{{title}}", &escaped(&self.title))
            .replace("{{filter}}", &escaped(self.words.filter))
            .replace("{{note}}", &escaped(&self.words.note))
            .replace("{{nonce}}", &self.key.to_string())
            .replace("{{style}}", STYLE)
            .replace("{{script}}", &SCRIPTS.concat())
            .replace("{{seal}}", &self.seal.to_string())
            // No text can end the script.
            .replace("{{words}}", &words.replace('<', "\\u003c"));
        let policy = format!(
            "default-src 'none'; style-src 'nonce-{0}'; script-src 'nonce-{0}'; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            self.key
        );
        let mut answer = answer(
            StatusCode::OK,
            "text/html; charset=utf-8",
            Full::from(page).boxed_unsync(),
        );
        if let Ok(policy) = HeaderValue::from_str(&policy) {
            answer
                .headers_mut()
                .insert(header::CONTENT_SECURITY_POLICY, policy);
        }
        answer
    }

    /// When the holders of one lock have renewed.
    fn renewals(&self, renewals: &Renewals, query: Option<&str>) -> Response<Body> {
        let mut parts = query.unwrap_or_default().split('&');
        let number = parts.find_map(|part| part.strip_prefix("lock=")?.parse().ok());
        let Some(number) = number else {
            return text(StatusCode::BAD_REQUEST, "The number of a lock is missing.\n");
        };
        let told = format!("{{\"seal\":\"{}\",\"holders\":{}}}", self.seal, renewals(number));
        answer(
            StatusCode::OK,
            "application/json",
            Full::from(told).boxed_unsync(),
        )
    }

    /// Server-sent events: all locks, and then what changes.
    fn events(&self) -> Response<Body> {
        let board = Arc::clone(&self.board);
        let changes = board.changes();
        let seal = format!("event: seal\ndata: {}\n\n", self.seal);
        let events = stream::unfold((board, changes, None), async |(board, mut changes, known)| {
            let event = if known.is_none() {
                changes.mark_unchanged();
                Some(board.since(None))
            } else {
                match tokio::time::timeout(SIGN_OF_LIFE, changes.changed()).await {
                    Ok(Ok(())) => {
                        tokio::time::sleep(TOGETHER).await;
                        changes.mark_unchanged();
                        Some(board.since(known))
                    }
                    Ok(Err(_)) => return None,
                    Err(_) => None,
                }
            };
            let known = event.as_ref().map_or(known, |news| Some(news.version));
            let text = event.map_or_else(|| ALIVE.to_owned(), |news| event_of(&news));
            Some((Ok(Frame::data(Bytes::from(text))), (board, changes, known)))
        });
        let sealed = stream::once(async move { Ok(Frame::data(Bytes::from(seal))) });
        let events = StreamBody::new(sealed.chain(events)).boxed_unsync();
        answer(StatusCode::OK, "text/event-stream", events)
    }
}

/// JSON has no line breaks, so it is one line of data.
fn event_of(news: &News) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let gone: Vec<_> = news.gone.iter().map(|key| quoted(key)).collect();
    let or_null = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), quoted);
    let trouble = or_null(news.trouble.as_deref());
    let left_out = or_null(news.left_out.as_deref());
    let mut text = format!(
        "data: {{\"all\":{},\"read\":{},\"changed\":[",
        news.is_all, news.is_read
    );
    for (index, lock) in news.changed.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{lock}", if index == 0 { "" } else { "," });
    }
    let gone = gone.join(",");
    text + &format!("],\"gone\":[{gone}],\"trouble\":{trouble},\"leftOut\":{left_out}}}\n\n")
}

fn text(status: StatusCode, text: impl Into<Full<Bytes>>) -> Response<Body> {
    answer(status, "text/plain; charset=utf-8", text.into().boxed_unsync())
}

fn answer(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    const HEADERS: [(HeaderName, &str); 4] = [
        (header::CACHE_CONTROL, "no-store"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

/// For a text in HTML.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests;
