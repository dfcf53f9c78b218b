//! The map of the modules matches the code, and all code is in modules.

use std::collections::BTreeSet;
use std::path::Path;

use lockkeeper_documents::{MAP, crates, files, read, written};

#[test]
fn the_map_of_the_modules_is_that_of_the_code() {
    let is_current = written().expect("a page with markers") == read(Path::new(MAP));
    assert!(is_current, "{MAP} is not what the code says: run `make map`");
}

#[test]
fn every_module_says_in_its_first_line_what_it_is() {
    let crates = crates();
    let modules = crates
        .iter()
        .flat_map(|of| &of.modules)
        .filter(|module| !module.is_test);
    let (said, silent): (Vec<_>, Vec<_>) = modules.partition(|module| !module.about().is_empty());
    let silent: Vec<_> = silent
        .iter()
        .map(|module| module.file.display().to_string())
        .collect();
    assert!(
        said.len() > 400 && silent.is_empty(),
        "begin these files with a line `//! What it is.`: {silent:#?}"
    );
}

#[test]
fn every_file_of_a_crate_is_one_of_its_modules() {
    let crates = crates();
    let compiled: BTreeSet<_> = crates
        .iter()
        .flat_map(|of| &of.modules)
        .map(|module| &module.file)
        .collect();
    let files = files();
    let is_source = |file: &&std::path::PathBuf| {
        file.extension().is_some_and(|kind| kind == "rs")
            && crates.iter().any(|of| file.starts_with(of.folder.join("src")))
    };
    let dead: Vec<_> = files
        .iter()
        .filter(is_source)
        .filter(|file| !compiled.contains(file))
        .collect();
    assert!(dead.is_empty(), "no `mod` names these files: {dead:#?}");
}
