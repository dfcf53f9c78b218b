//! Files of code are short, and pages name only files that exist.

use std::path::Path;

use lockkeeper_documents::{MAP, files, read, root};

/// CONTRIBUTING.md promises it.
const MOST_LINES: usize = 400;

/// Folders at the top whose paths pages name from the top.
const TOP: [&str; 9] = [
    "lock/",
    "daemon/",
    "sidecar/",
    "crds/",
    "operator/",
    "charts/",
    "e2e/",
    "docs/",
    ".ci/",
];

fn with_extension(wanted: &str) -> Vec<std::path::PathBuf> {
    let all = files().into_iter();
    all.filter(|file| file.extension().is_some_and(|extension| extension == wanted))
        .collect()
}

#[test]
fn no_file_of_code_is_longer_than_400_lines() {
    let code = with_extension("rs");
    let long = code.iter().filter_map(|file| {
        let lines = read(file).lines().count();
        (lines > MOST_LINES).then(|| format!("{}: {lines} lines", file.display()))
    });
    let long: Vec<_> = long.collect();
    assert!(code.len() > 500 && long.is_empty(), "{long:#?}");
}

#[test]
fn every_path_that_a_page_names_exists() {
    let mut named = 0;
    let mut wrong = Vec::new();
    // The map names files from the `src` of their crate, and has a link to each.
    for page in with_extension("md").iter().filter(|page| *page != Path::new(MAP)) {
        let text = read(page);
        for line in text.lines() {
            for path in line.split('`').skip(1).step_by(2) {
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./-".contains(c);
                if TOP.iter().any(|top| path.starts_with(top)) && path.chars().all(is_plain) {
                    named += 1;
                    if !root().join(path).exists() {
                        wrong.push(format!("{}: {path}", page.display()));
                    }
                }
            }
        }
    }
    assert!(named > 100 && wrong.is_empty(), "{wrong:#?}");
}
