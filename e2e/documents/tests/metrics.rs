//! Names of metrics in the documentation, in alerts and on the dashboard are those that the programs have.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use lockkeeper_documents::{Page, files, read};
use lockkeeper_lock::LockStatus;
use lockkeeper_operator::admission::webhook::metrics::WebhookMetrics;
use lockkeeper_operator::lock_metrics;
use lockkeeper_operator::metrics::{Cause, Metrics, OfLock, Outcome, Write};
use lockkeeper_sidecar::metrics::{self, LockMetrics};
use lockkeeper_sidecar::view::{About, Guarded, KeeperView};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

/// The page that explains all metrics.
const PAGE: &str = "docs/operations.md";

/// Suffixes that a counter, a histogram and an info add to the registered name.
const SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_info"];

fn names(registry: &Registry) -> BTreeSet<String> {
    let mut text = String::new();
    encode(&mut text, registry).expect("text");
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| {
            let (name, kind) = line.split_once(' ').expect("a type");
            let suffix = match kind {
                "counter" => "_total",
                "info" => "_info",
                _ => "",
            };
            format!("{name}{suffix}")
        })
        .collect()
}

fn of_a_keeper() -> BTreeSet<String> {
    let (_status, watched) = watch::channel(LockStatus::new());
    let (_guarded, guarded) = watch::channel(Guarded::default());
    let view = KeeperView::new(watched, guarded, About::exclusive("/l"));
    let mut registry = metrics::registry(None);
    LockMetrics::register(&mut registry);
    metrics::register_view(view, &mut registry);
    names(&registry)
}

fn of_an_operator() -> BTreeSet<String> {
    let mut registry = Registry::default();
    let operator = Metrics::register(&mut registry);
    let webhook = WebhookMetrics::register(&mut registry);
    lock_metrics::register_none(&mut registry);
    // The output leaves out a family without a series.
    drop(operator.reconciliations.get_or_create(&Outcome { result: "ok" }));
    drop(operator.writes.get_or_create(&Write { kind: "status" }));
    drop(operator.handoffs.get_or_create(&Cause { cause: "user" }));
    let lock = OfLock {
        namespace: "n".to_owned(),
        lock: "l".to_owned(),
    };
    drop(operator.losses.get_or_create(&lock));
    drop(operator.fenced.get_or_create(&lock));
    webhook.begin("pods").end("wrap");
    names(&registry)
}

/// Names of metrics in a text: all words that begin with `lockkeeper_`, without crates in paths of Rust.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let starts = text.match_indices("lockkeeper_").map(|(at, _)| at);
    let starts = starts.filter(|at| !text[..*at].ends_with(|before: char| is_part(before) || before == '/'));
    let words = starts.map(|at| {
        text[at..].split_at(
            text[at..]
                .find(|letter| !is_part(letter))
                .unwrap_or(text.len() - at),
        )
    });
    // `__meta_kubernetes_pod_label_lockkeeper_io_lock` is a label of Prometheus; `lockkeeper_*` are all.
    words
        .filter(|(word, rest)| *word != "lockkeeper_" && !rest.starts_with("::"))
        .map(|(word, _)| word.to_owned())
        .collect()
}

#[test]
fn every_metric_that_a_page_an_alert_or_the_dashboard_names_exists() {
    let exported = &of_a_keeper() | &of_an_operator();
    let is_exported = |name: &str| {
        let without = SUFFIXES.iter().find_map(|suffix| name.strip_suffix(suffix));
        exported.contains(name) || without.is_some_and(|name| exported.contains(name))
    };
    let is_read = |file: &PathBuf| {
        let is_page = file.extension().is_some_and(|extension| extension == "md");
        is_page || file.starts_with("charts/lockkeeper")
    };
    let mut wrong = Vec::new();
    let mut checked = 0;
    for file in files().iter().filter(|file| is_read(file)) {
        for name in mentioned(&read(file)) {
            checked += 1;
            if !is_exported(&name) {
                wrong.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(
        checked > 50 && wrong.is_empty(),
        "{checked} checked, {wrong:#?}\nof {exported:#?}"
    );
}

#[test]
fn every_metric_is_explained() {
    let page = mentioned(&read(Path::new(PAGE)));
    let missing: Vec<_> = (&of_a_keeper() | &of_an_operator())
        .difference(&page)
        .cloned()
        .collect();
    assert!(missing.is_empty(), "{PAGE} does not explain {missing:?}");
}

/// A file of rules, as Prometheus reads it.
#[derive(serde::Deserialize)]
struct Rules {
    groups: Vec<Group>,
}

#[derive(serde::Deserialize)]
struct Group {
    rules: Vec<Alert>,
}

#[derive(serde::Deserialize)]
struct Alert {
    alert: String,
}

#[test]
fn every_alert_has_its_runbook() {
    let alerts: Vec<_> = ["keepers", "operator", "machines"]
        .into_iter()
        .flat_map(|name| {
            let text = read(&Path::new("charts/lockkeeper/alerts").join(format!("{name}.yaml")));
            let rules: Rules = serde_saphyr::from_str(&text).expect("rules");
            rules.groups
        })
        .flat_map(|group| group.rules)
        .collect();
    let page = Page::parse(&read(Path::new(PAGE)));
    let without: Vec<_> = alerts
        .iter()
        .map(|alert| &alert.alert)
        .filter(|alert| !page.anchors.contains(&alert.to_lowercase()))
        .collect();
    assert!(
        alerts.len() > 10 && without.is_empty(),
        "{PAGE} has no section {without:?}"
    );
}
