//! What the charts tell Artifact Hub has its form, and fits the charts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockkeeper_crds::DistributedLock;
use lockkeeper_documents::{read, root};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const CHARTS: [&str; 2] = ["charts/lockkeeper", "charts/lockkeeper-crds"];
const PREFIX: &str = "artifacthub.io/";

// The values that https://artifacthub.io/docs/topics/annotations/helm allows.
const CATEGORIES: [&str; 8] = [
    "ai-machine-learning",
    "database",
    "integration-delivery",
    "monitoring-logging",
    "networking",
    "security",
    "storage",
    "streaming-messaging",
];
const CAPABILITIES: [&str; 5] = [
    "basic install",
    "seamless upgrades",
    "full lifecycle",
    "deep insights",
    "auto pilot",
];
const CHANGES: [&str; 6] = ["added", "changed", "deprecated", "removed", "fixed", "security"];

/// A Chart.yaml, as Helm reads it (https://helm.sh/docs/topics/charts/#the-chartyaml-file).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[allow(dead_code, reason = "the fields say what may be there")]
struct Chart {
    api_version: String,
    name: String,
    description: String,
    r#type: String,
    version: String,
    app_version: String,
    kube_version: String,
    #[serde(default)]
    home: String,
    #[serde(default)]
    sources: Vec<String>,
    #[serde(default)]
    icon: String,
    keywords: Vec<String>,
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    name: String,
    image: String,
    #[serde(default)]
    platforms: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    kind: String,
    description: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Definition {
    kind: String,
    version: String,
    name: String,
    display_name: String,
    description: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Link {
    name: String,
    url: String,
}

fn parse<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\nin\n{text}"))
}

fn chart(folder: &str) -> Chart {
    parse(&read(&Path::new(folder).join("Chart.yaml")))
}

impl Chart {
    fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations
            .get(&format!("{PREFIX}{name}"))
            .map(String::as_str)
    }

    fn list<T: DeserializeOwned>(&self, name: &str) -> Vec<T> {
        self.annotation(name).map(parse).unwrap_or_default()
    }
}

#[test]
fn every_annotation_is_one_that_artifact_hub_knows_with_a_value_that_it_takes() {
    for folder in CHARTS {
        let chart = chart(folder);
        for (key, value) in &chart.annotations {
            let Some(name) = key.strip_prefix(PREFIX) else {
                continue;
            };
            let is_right = match name {
                "license" => value == env!("CARGO_PKG_LICENSE"),
                "category" => CATEGORIES.contains(&value.as_str()),
                "operator" => value == "true",
                "operatorCapabilities" => CAPABILITIES.contains(&value.as_str()),
                "prerelease" => *value == chart.version.contains('-').to_string(),
                "images" => !chart.list::<Image>(name).is_empty(),
                "crds" => !chart.list::<Definition>(name).is_empty(),
                "crdsExamples" => !chart.list::<Value>(name).is_empty(),
                "changes" => chart
                    .list::<Change>(name)
                    .iter()
                    .all(|change| CHANGES.contains(&change.kind.as_str()) && !change.description.is_empty()),
                _ => false,
            };
            assert!(is_right, "{folder}: {key}: {value}");
        }
        for name in ["license", "category", "prerelease", "changes"] {
            assert!(chart.annotation(name).is_some(), "{folder} has no {PREFIX}{name}");
        }
    }
}

/// The list of changes is written by hand: its first line says which version it is about.
#[test]
fn the_changes_are_those_of_the_version() {
    for folder in CHARTS {
        let chart = chart(folder);
        assert_eq!(chart.version, env!("CARGO_PKG_VERSION"), "{folder}");
        let changes = chart.annotation("changes").unwrap_or_default();
        let first = changes.lines().next();
        assert_eq!(first, Some(format!("# {}", chart.version).as_str()), "{folder}");
    }
}

#[test]
fn the_images_are_those_that_the_chart_uses_by_default() {
    let values: Value = parse(&read(Path::new("charts/lockkeeper/values.yaml")));
    assert_images_are_told(&chart(CHARTS[0]), &values);
}

/// Asserts that the annotations of the chart name the images of its values.
fn assert_images_are_told(chart: &Chart, values: &Value) {
    let ours = |image: &Value| format!("{}:{}", image["repository"].as_str().unwrap(), chart.app_version);
    let expected = [
        ours(&values["image"]),
        ours(&values["sidecar"]["image"]),
        values["zookeeper"]["server"]["image"]
            .as_str()
            .unwrap()
            .to_owned(),
    ];
    let images: Vec<Image> = chart.list("images");
    let told: Vec<_> = images.iter().map(|image| image.image.as_str()).collect();
    assert_eq!(told, expected);
    for image in &images {
        let is_named = image.image.contains(&format!("{}:", image.name));
        let is_ours = image.platforms == ["linux/amd64", "linux/arm64"];
        assert!(is_named && (is_ours || image.platforms.is_empty()), "{image:?}");
    }
}

#[test]
fn the_resource_is_told_as_the_chart_defines_it_with_an_example_that_users_find_in_the_documentation() {
    let chart = chart(CHARTS[1]);
    let crds: Value = parse(&read(Path::new("crds/distributedlock.yaml")));
    let told: Vec<Definition> = chart.list("crds");
    let [told] = &told[..] else { panic!("one resource") };
    assert_eq!(crds["metadata"]["name"], told.name);
    assert_eq!(crds["spec"]["names"]["kind"], told.kind);
    assert_eq!(crds["spec"]["versions"][0]["name"], told.version);
    assert!(!told.display_name.is_empty() && !told.description.is_empty());

    let examples: Vec<Value> = chart.list("crdsExamples");
    let documented: Value = parse(&read(Path::new("docs/examples/distributedlock.yaml")));
    assert_eq!(examples, [documented]);
    serde_json::from_value::<DistributedLock>(examples[0].clone()).expect("a lock");
}

/// Runs `.ci/release/image-names` on a copy of the chart with the operator, and returns its files and what it printed of errors.
fn with_images(images: &str) -> (Chart, Value, String) {
    let copy = tempfile::tempdir().unwrap();
    for file in ["Chart.yaml", "values.yaml"] {
        std::fs::copy(root().join(CHARTS[0]).join(file), copy.path().join(file)).unwrap();
    }
    let output = Command::new(root().join(".ci/release/image-names"))
        .arg(images)
        .arg(copy.path())
        .output()
        .unwrap();
    let text = |file: &str| std::fs::read_to_string(copy.path().join(file)).unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    (parse(&text("Chart.yaml")), parse(&text("values.yaml")), errors)
}

#[test]
fn a_chart_of_a_release_takes_the_images_from_where_they_are_published() {
    let (chart, values, errors) = with_images("registry.example.org:5000/owner/name");
    assert_eq!(errors, "");
    let operator = &values["image"]["repository"];
    assert_eq!(
        operator,
        "registry.example.org:5000/owner/name/lockkeeper-operator"
    );
    let sidecar = &values["sidecar"]["image"]["repository"];
    assert_eq!(sidecar, "registry.example.org:5000/owner/name/lockkeeper");
    assert_eq!(
        values["zookeeper"]["server"]["image"], "zookeeper:3.9",
        "not ours"
    );
    assert_images_are_told(&chart, &values);

    let (_, unchanged, errors) = with_images("lockkeeper");
    assert_eq!(errors, "");
    let before: Value = parse(&read(Path::new("charts/lockkeeper/values.yaml")));
    assert_eq!(unchanged, before);
    for wrong in [
        "ghcr.io/Owner/name",
        "ghcr.io/a b",
        "https://ghcr.io/a",
        "ghcr.io/a/",
    ] {
        let (_, values, errors) = with_images(wrong);
        assert!(
            errors.contains("in lower case") && errors.lines().count() == 1,
            "{errors}"
        );
        assert_eq!(values, before);
    }
}

/// Runs `.ci/release/addresses` on a copy of a chart's file, and returns that file and what it printed of errors.
fn with_addresses(folder: &str, repository: &str) -> (PathBuf, tempfile::TempDir, String) {
    let copy = tempfile::tempdir().unwrap();
    let file = copy.path().join("Chart.yaml");
    std::fs::copy(root().join(folder).join("Chart.yaml"), &file).unwrap();
    let output = Command::new(root().join(".ci/release/addresses"))
        .args([repository, "1.2.3"])
        .arg(&file)
        .output()
        .unwrap();
    (file, copy, String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_chart_of_a_release_leads_to_the_project() {
    let repository = "https://example.org/owner/name";
    for folder in CHARTS {
        let (file, _copy, errors) = with_addresses(folder, repository);
        assert_eq!(errors, "");
        let told: Chart = parse(&std::fs::read_to_string(&file).unwrap());
        assert_eq!(told.home, repository);
        assert_eq!(told.sources, [repository]);
        let icon = told.icon.strip_prefix(&format!("{repository}/raw/v1.2.3/"));
        assert!(
            icon.is_some_and(|file| root().join(file).is_file()),
            "{}",
            told.icon
        );
        let links: Vec<Link> = told.list("links");
        let names: Vec<_> = links.iter().map(|link| link.name.as_str()).collect();
        // Artifact Hub shows the link `support` as the one to report a problem.
        assert_eq!(names, ["Documentation", "Changes", "support"]);
        for link in &links {
            assert!(link.url.starts_with(repository), "{}", link.url);
            // A file of the repository, in the tag of the release.
            if let Some((_, path)) = link.url.split_once("/blob/v1.2.3/") {
                assert!(root().join(path).is_file(), "{}", link.url);
            }
        }
        // Nothing else has changed.
        assert_eq!(told.annotations.len(), chart(folder).annotations.len() + 1);
    }
}

#[test]
fn an_address_that_is_none_is_refused_in_one_sentence() {
    for address in [
        "example.org/owner/name",
        "https://example.org/a b",
        "https://example.org/o/n/",
    ] {
        let (file, _copy, errors) = with_addresses(CHARTS[0], address);
        assert!(
            errors.contains("has to be the address") && errors.lines().count() == 1,
            "{errors}"
        );
        let unchanged = std::fs::read_to_string(file).unwrap();
        assert_eq!(unchanged, read(&Path::new(CHARTS[0]).join("Chart.yaml")));
    }
}
