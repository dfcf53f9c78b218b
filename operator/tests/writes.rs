//! All writes of the operator are in a few files, and the architecture says of each by which right it writes.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

#[path = "support/sources.rs"]
mod sources;

use sources::{code, files, src};

const ARCHITECTURE: &str = include_str!("../../docs/architecture.md");

/// Words without which nothing is written to the API server, and those for writes to an ensemble.
const WORDS: [&str; 9] = [
    // Parameters of every write of the client library, and its recorder of events.
    "PostParams",
    "PatchParams",
    "DeleteParams",
    "Recorder",
    // Requests to ZooKeeper.
    "CreateMode",
    ".set_data(",
    ".set_acl(",
    ".delete(",
    ".add_delete(",
];

/// The lines of code before the unit tests.
fn program(text: &str) -> impl Iterator<Item = &str> {
    code(text).take_while(|line| !line.starts_with("#[cfg(test)]"))
}

/// The files that write, below `src`.
fn writing() -> BTreeSet<String> {
    let src = src();
    let writes = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        program(&text).any(|line| WORDS.iter().any(|word| line.contains(word)))
    };
    let below = |path: PathBuf| path.strip_prefix(&src).unwrap().display().to_string();
    files(&src).into_iter().filter(writes).map(below).collect()
}

/// The files that the table of the architecture names, below `operator/src`.
fn named() -> BTreeSet<String> {
    let section = ARCHITECTURE.split_once("## What the operator writes").unwrap().1;
    let section = section
        .split_once("\n## ")
        .map_or(section, |(section, _)| section);
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let words = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let files = words.filter_map(|word| word.strip_prefix("operator/src/"));
    files.map(str::to_owned).collect()
}

#[test]
fn nothing_is_written_but_in_the_files_of_which_the_architecture_says_by_which_right() {
    assert_eq!(writing(), named());
}

/// Writes into an ensemble: a call on the writer, or one inside of it.
const VERBS: [&str; 5] = [
    ".ensure_lock(",
    ".agree(",
    ".remove_lock(",
    ".remove_contender(",
    ".request_yield(",
];

#[test]
fn the_controllers_write_into_ensembles_only_by_their_writer() {
    let mut found = 0;
    for path in files(&src().join("controller")) {
        let text = fs::read_to_string(&path).unwrap();
        for line in program(&text) {
            if VERBS.iter().any(|verb| line.contains(verb)) {
                found += 1;
                let is_by_writer = line.contains("writer.") || path.ends_with("controller/writer.rs");
                assert!(is_by_writer, "{}: {line}", path.display());
            }
        }
    }
    assert!(found >= 2 * VERBS.len(), "{found}");
}
