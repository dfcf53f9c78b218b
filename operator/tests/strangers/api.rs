//! An API server that has a few objects, and a registry of any kind: HTTP without TLS, each request noted.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

pub type Answer = Response<BoxBody<Bytes, Infallible>>;

/// A server on a port of loopback. It ends with the runtime of the test.
pub struct Http {
    /// `127.0.0.1:PORT`.
    pub name: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Http {
    pub async fn start(answer: impl Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = listener.local_addr().unwrap().to_string();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let answer = Arc::new(answer);
        tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                loop {
                    let (stream, _) = listener.accept().await.unwrap();
                    let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                    let service = service_fn(move |request: Request<Incoming>| {
                        let line = format!("{} {}", request.method(), request.uri());
                        seen.lock().unwrap().push(line);
                        let answer = answer(&request);
                        async { Ok::<_, Infallible>(answer) }
                    });
                    tokio::spawn(
                        hyper::server::conn::http1::Builder::new()
                            .serve_connection(TokioIo::new(stream), service),
                    );
                }
            }
        });
        Self { name, seen }
    }

    /// Method and path of each request.
    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(Full::new(body.into()).boxed()).unwrap()
}
