//! What two outputs of a command have in common: not the times, and not the names that a cluster or a keeper makes up. A
//! name has to be the same wherever the page has the same one.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Any lines, also none.
const ANY: &str = "…";

/// What differs from run to run: names of pods, hashes of their templates, fencing tokens and IDs; the contenders in the
/// ensemble and their sessions; nodes, among which the scheduler chooses; moments and durations.
static VARIES: LazyLock<Regex> = LazyLock::new(|| {
    let names = [
        r"_c_[0-9a-f-]{36}-lock-[0-9]{10}",
        r"0x[0-9a-f]+",
        r"[a-z]+(-[a-z]+)*-[0-9a-f]{8,10}-[0-9a-z]{5}",
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        r"[0-9a-f]{8,10}",
    ];
    let others = [
        r"(?<node>kind-worker[0-9]*|n[0-9])",
        r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z",
        r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?",
        r"([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+",
    ];
    Regex::new(&format!(
        r"\b((?<name>{})|{})\b",
        names.join("|"),
        others.join("|")
    ))
    .unwrap()
});

/// The names so far.
#[derive(Debug, Default)]
pub(crate) struct Names(Vec<String>);

impl Names {
    /// A line with single spaces, with numbers for names, in the order in which they first appeared, and without nodes and
    /// times.
    pub(crate) fn normal(&mut self, line: &str) -> String {
        let line = VARIES.replace_all(line, |found: &Captures<'_>| match found.name("name") {
            Some(name) => format!("<{}>", self.number(name.as_str())),
            None if found.name("node").is_some() => "<node>".to_owned(),
            None => "<time>".to_owned(),
        });
        // Which of the two it is, the page leaves open.
        let line = line.replace("Released", "HandedOver");
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        // The next in the queue renews from the moment on in which it has seen that it is the next.
        words
            .replace("<time> <time> ago", "<lease>")
            .replace("- -", "<lease>")
    }

    fn number(&mut self, name: &str) -> usize {
        self.0.iter().position(|known| known == name).unwrap_or_else(|| {
            self.0.push(name.to_owned());
            self.0.len() - 1
        })
    }
}

/// Whether lines are as expected, where `…` stands for any.
pub(crate) fn matches(expected: &[String], got: &[String]) -> bool {
    match expected.split_first() {
        None => got.is_empty(),
        Some((any, rest)) if any == ANY => (0..=got.len()).any(|skipped| matches(rest, &got[skipped..])),
        Some((line, rest)) => got.first() == Some(line) && matches(rest, &got[1..]),
    }
}

#[test]
fn names_are_told_apart_and_nodes_and_times_are_not() {
    let mut names = Names::default();
    let first = names.normal("report-5c5c6d6c87-kc69l   on kind-worker2 since 12:00:01, 4294967327  1.5s");
    assert_eq!(first, "<0> on <node> since <time>, <1> <time>");
    let again = names.normal("pod/report-5c5c6d6c87-abcde not report-5c5c6d6c87-kc69l");
    assert_eq!(again, "pod/<2> not <0>");
}

#[test]
fn a_contender_is_the_same_whether_it_has_begun_to_renew_or_not() {
    let mut names = Names::default();
    let renews = names.normal("1   m2   4294967306   waiting   1s   8500ms   0s ago   _c_93418cc4-fa0d-4554-9e5c-0a3867e0cc5a-lock-0000000001");
    let waits = names.normal("1   m2   4294967306   waiting   1s   -   -   _c_93418cc4-fa0d-4554-9e5c-0a3867e0cc5a-lock-0000000001");
    assert_eq!(renews, waits);
    assert_eq!(waits, "1 m2 <0> waiting <time> <lease> <1>");
}

#[test]
fn an_ellipsis_stands_for_any_lines_and_nothing_else_does() {
    let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("… b"), &lines("a a b")));
    assert!(matches(&lines("a …"), &lines("a")));
    assert!(!matches(&lines("… b"), &lines("a a")));
    assert!(!matches(&lines("a"), &lines("a b")));
    assert!(!matches(&lines("a b"), &lines("a")));
}
