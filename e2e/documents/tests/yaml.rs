//! The YAML in the documentation is well formed, and valid for the resource and the keys.

use std::collections::BTreeSet;
use std::path::PathBuf;

use lockkeeper_crds::{DEFAULT_TICK_TIME, DistributedLock, DistributedLockSpec, definition, keys};
use lockkeeper_documents::{files, read, yaml};

#[test]
fn every_piece_of_yaml_can_be_read() {
    if let Err(faults) = yaml() {
        panic!("{}", faults.join("\n"));
    }
}

#[test]
fn every_lock_of_the_documentation_is_valid_and_has_known_fields_only() {
    let crd = definition::crd();
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref());
    let fields = &schema
        .and_then(|schema| schema.properties.as_ref())
        .expect("fields")["spec"];
    let known: BTreeSet<_> = fields.properties.iter().flatten().map(|(name, _)| name).collect();
    let pieces = yaml().expect("YAML");
    let locks: Vec<_> = pieces
        .iter()
        .filter(|piece| piece.kind() == Some("DistributedLock"))
        .collect();
    assert!(locks.len() > 1, "{locks:?}");
    for piece in locks {
        let file = piece.file.display();
        let lock: DistributedLock =
            serde_json::from_value(piece.value.clone()).unwrap_or_else(|error| panic!("{file}: {error}"));
        let DistributedLock { spec, .. } = &lock;
        check(spec).unwrap_or_else(|error| panic!("{file}: {error}"));
        let fields = piece.value["spec"].as_object().expect("settings");
        let unknown: Vec<_> = fields.keys().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{file}: a lock has no field {unknown:?}");
    }
}

fn check(spec: &DistributedLockSpec) -> Result<(), String> {
    let checked = spec.validate(DEFAULT_TICK_TIME.get());
    checked.map(drop).map_err(|error| error.to_string())
}

/// Keys of the group in a text; neither versions of its API nor objects (`distributedlock.lockkeeper.io/NAME`).
fn keys_in(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    let text = text.replace("distributedlock.lockkeeper.io/", "");
    let names = text.split("lockkeeper.io/").skip(1).map(|rest| {
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        // `kubectl annotate KEY-` removes the key.
        (rest[..end].trim_end_matches('-'), &rest[end..])
    });
    let is_version = |rest: &str| rest.starts_with(|next: char| next.is_ascii_digit());
    names
        .filter(|(name, rest)| !name.is_empty() && !is_version(rest))
        .map(|(name, _)| format!("{}/{name}", keys::GROUP))
        .collect()
}

fn known_keys() -> BTreeSet<String> {
    keys::ALL.iter().map(|key| (*key).to_owned()).collect()
}

#[test]
fn every_key_that_a_page_or_a_chart_names_exists() {
    let known = known_keys();
    let is_page = |file: &&PathBuf| file.extension().is_some_and(|extension| extension == "md");
    let files = files();
    let read_by_users = files
        .iter()
        .filter(|file| is_page(file) || file.starts_with("charts"));
    let (mut named, mut wrong) = (0, Vec::new());
    for file in read_by_users {
        for key in keys_in(&read(file)) {
            named += 1;
            if !known.contains(&key) {
                wrong.push(format!("{}: {key}", file.display()));
            }
        }
    }
    assert!(
        named > 50 && wrong.is_empty(),
        "{named} named, {wrong:#?}\nof {known:#?}"
    );
}

#[test]
fn every_key_is_explained() {
    let page = "docs/reference.md";
    let explained = keys_in(&read(page.as_ref()));
    let missing: Vec<_> = known_keys().difference(&explained).cloned().collect();
    assert!(missing.is_empty(), "{page} does not explain {missing:?}");
}
