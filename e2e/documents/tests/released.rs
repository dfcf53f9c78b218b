//! Pages say that there is no release yet as long as that is so, and no longer.

use std::path::{Path, PathBuf};

use lockkeeper_documents::{files, read, steps};

/// How pages say it, in lower case.
const SENTENCES: [&str; 3] = [
    "no release is published yet",
    "there has been no release",
    "there is no release yet",
];
const CHANGES: &str = "CHANGELOG.md";

/// The page that says how to make one names the sentences.
const ABOUT: &str = "docs/releasing.md";

fn is_released() -> bool {
    let heads = |line: &str| {
        let version = line.strip_prefix("## [")?.chars().next()?;
        Some(version.is_ascii_digit())
    };
    read(Path::new(CHANGES))
        .lines()
        .any(|line| heads(line) == Some(true))
}

#[test]
fn no_page_denies_a_release_that_the_changelog_heads() {
    let denies = |page: &PathBuf| {
        let words: Vec<_> = read(page)
            .to_lowercase()
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let text = words.join(" ");
        SENTENCES.iter().any(|sentence| text.contains(sentence))
    };
    let mut denying = files();
    denying.retain(|file| file.extension().is_some_and(|kind| kind == "md") && file != Path::new(ABOUT));
    denying.retain(denies);
    if is_released() {
        assert!(
            denying.is_empty(),
            "{CHANGES} has a version, and these say that there is none: {denying:?}"
        );
    } else {
        let expected = [
            CHANGES,
            "README.md",
            "docs/tutorial-machines.md",
            "docs/tutorial.md",
            "docs/versions.md",
        ];
        denying.sort();
        assert_eq!(denying, expected.map(PathBuf::from));
    }
}

#[test]
fn the_commands_that_install_a_release_name_the_version_of_the_workspace() {
    let named = format!("--version {} ", env!("CARGO_PKG_VERSION"));
    let installing: Vec<_> = steps(ABOUT)
        .into_iter()
        .filter(|step| step.command.starts_with("helm install "))
        .collect();
    assert!(!installing.is_empty());
    for step in installing {
        assert!(step.command.contains(&named), "{ABOUT}: {}", step.command);
    }
}
