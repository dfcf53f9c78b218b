//! Small answers: text, JSON, or an error in one sentence.

use std::convert::Infallible;

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::{Request, Response, StatusCode};
use serde::Serialize;

pub type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

pub fn text(status: StatusCode, content_type: &'static str, content: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(content.into()).boxed_unsync());
    *answer.status_mut() = status;
    answer
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}

pub fn json(status: StatusCode, content: &impl Serialize) -> Answer {
    match serde_json::to_vec(content) {
        Ok(content) => text(status, "application/json", content),
        Err(error) => text(
            StatusCode::INTERNAL_SERVER_ERROR,
            "text/plain; charset=utf-8",
            error.to_string(),
        ),
    }
}

/// An error in one sentence.
pub fn sentence(status: StatusCode, error: impl Into<String>) -> Answer {
    json(status, &Sentence { error: error.into() })
}

/// The path exists and the method does not.
pub fn wrong_method(request: &Request<Incoming>, allowed: &'static str) -> Answer {
    wrong_method_for(request.uri().path(), request, allowed)
}

/// The same, if the path must not be repeated.
pub fn wrong_method_for(what: &str, request: &Request<Incoming>, allowed: &'static str) -> Answer {
    let mut answer = sentence(
        StatusCode::METHOD_NOT_ALLOWED,
        format!("{what} accepts {allowed}, not {}", request.method()),
    );
    answer
        .headers_mut()
        .insert(ALLOW, HeaderValue::from_static(allowed));
    answer
}

/// The path does not exist.
pub fn not_found(request: &Request<Incoming>, known: &str) -> Answer {
    sentence(
        StatusCode::NOT_FOUND,
        format!("there is no {} here; there is {known}", request.uri().path()),
    )
}

/// The body of [`sentence`].
#[derive(Debug, serde::Serialize, serde::Deserialize)]
pub struct Sentence {
    pub error: String,
}
