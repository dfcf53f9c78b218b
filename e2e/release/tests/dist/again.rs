//! The second build.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::verified::SIGNATURES;
use crate::{VERSION, dist, repository, said, words};

fn files(folder: &Path) -> BTreeMap<String, PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), path))
        // Signatures differ even of the same bytes.
        .filter(|(name, _)| !SIGNATURES.contains(&name.as_str()))
        .collect()
}

#[test]
fn the_same_commit_gives_the_same_release_bit_by_bit_in_another_folder() {
    let Some(dist) = dist() else { return };
    // A name of another length moves whatever contains it.
    let elsewhere = tempfile::Builder::new()
        .prefix("lockkeeper-again-")
        .tempdir()
        .unwrap();
    let clone = elsewhere.path().join("source");
    said("git", words!["clone", "--quiet", repository(), &clone]);
    let log = fs::File::create(elsewhere.path().join("log")).unwrap();
    let status = Command::new("make")
        .args(["dist", &format!("VERSION={VERSION}")])
        .current_dir(&clone)
        .env("CARGO_TARGET_DIR", elsewhere.path().join("built"))
        // Variables of the make that runs this test, and of the cargo that built it.
        .env_remove("MAKEFLAGS")
        .env_remove("MAKELEVEL")
        // Signatures are not compared.
        .env_remove("KEY")
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .status()
        .unwrap();
    let log = fs::read_to_string(elsewhere.path().join("log")).unwrap();
    assert!(status.success(), "{log}");

    let (first, second) = (files(&dist), files(&clone.join("target/dist")));
    assert!(first.keys().eq(second.keys()), "{first:?}\n{second:?}");
    let differ = |name: &&String| fs::read(&first[*name]).unwrap() != fs::read(&second[*name]).unwrap();
    let different: Vec<_> = first.keys().filter(differ).collect();
    if !different.is_empty() {
        panic!(
            "{different:?} differ; the second build is in {}",
            elsewhere.keep().display()
        );
    }
}
