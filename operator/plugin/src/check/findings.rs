//! What an installation lacks, one sentence for each thing that was looked at. Pure.

mod admission;
mod locks;
mod operator;

use std::fmt::Write as _;

use k8s_openapi::jiff::Timestamp;
use lockkeeper_daemon::table::plain;
use serde::Serialize;

use super::installed::{Installation, Read};

/// How it is with one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    Good,
    /// It works, and the administrator should look at it.
    Warning,
    /// It has to be mended.
    Problem,
    /// It could not be looked at.
    Unknown,
}

/// What was found.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    check: &'static str,
    pub(super) verdict: Verdict,
    says: String,
}

/// A verdict, and why.
type Said = (Verdict, String);

pub(super) fn findings(installation: &Installation) -> Vec<Finding> {
    let Installation {
        resource,
        operators,
        lacking,
        webhooks,
        tried,
        policies,
        locks,
        sidecars,
    } = installation;
    let served = of(operators, |found| operator::operator(found));
    let told = match served.0 {
        Verdict::Problem => unknown("statuses are old: no operator is ready"),
        Verdict::Good | Verdict::Warning | Verdict::Unknown => of(locks, locks::locks),
    };
    [
        (
            "resource",
            of(resource, |found| operator::resource(found.as_ref())),
        ),
        ("operator", served),
        (
            "versions",
            operator::versions(resource, operators, env!("CARGO_PKG_VERSION")),
        ),
        ("rights", of(lacking, |found| operator::rights(found))),
        ("webhooks", of(webhooks, |found| admission::webhooks(found))),
        (
            "authorities",
            of(webhooks, |found| admission::authorities(found, Timestamp::now())),
        ),
        ("injection", admission::injection(tried)),
        (
            "policies",
            of(policies, |(policies, bindings)| {
                admission::policies(policies, bindings)
            }),
        ),
        ("locks", told),
        ("sidecars", of(sidecars, locks::sidecars)),
    ]
    .map(|(check, (verdict, says))| Finding { check, verdict, says })
    .into()
}

/// A line for each.
pub(super) fn table(findings: &[Finding]) -> String {
    let mut text = String::new();
    for Finding { check, verdict, says } in findings {
        let verdict = match verdict {
            Verdict::Good => "good",
            Verdict::Warning => "warning",
            Verdict::Problem => "PROBLEM",
            Verdict::Unknown => "unknown",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{check:<11}   {verdict:<7}   {}", plain(says));
    }
    text
}

fn of<T>(read: &Read<T>, judge: impl FnOnce(&T) -> Said) -> Said {
    match read {
        Ok(found) => judge(found),
        Err(why) => unknown(why.clone()),
    }
}

fn good(says: impl Into<String>) -> Said {
    (Verdict::Good, says.into())
}

fn warning(says: impl Into<String>) -> Said {
    (Verdict::Warning, says.into())
}

fn problem(says: impl Into<String>) -> Said {
    (Verdict::Problem, says.into())
}

fn unknown(says: impl Into<String>) -> Said {
    (Verdict::Unknown, says.into())
}

#[cfg(test)]
fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("an object")
}

#[test]
fn what_may_not_be_read_is_unknown_and_says_why() {
    let refused: Read<()> = Err("deployments is forbidden".to_owned());
    assert_eq!(of(&refused, |()| good("")), unknown("deployments is forbidden"));
}
