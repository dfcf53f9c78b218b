//! What the page names: its commands, and its manifest.

use std::path::Path;

use lockkeeper_documents::{blocks, read, steps};

/// The page.
pub const PAGE: &str = "docs/tutorial.md";

#[test]
fn the_page_installs_rolls_out_crashes_a_node_and_uninstalls() {
    let steps = steps(PAGE);
    for needed in [
        "helm install",
        "check",
        "rollout restart",
        "docker kill",
        "takenFrom",
        "helm uninstall",
    ] {
        let is_there = steps.iter().any(|step| step.command.contains(needed));
        assert!(is_there, "no command with {needed}");
    }
}

#[test]
fn the_page_shows_the_manifest_that_it_applies() {
    let page = read(Path::new(PAGE));
    let shown = blocks(&page).into_iter().find(|block| block.language == "yaml");
    assert_eq!(shown.unwrap().text, read(Path::new("docs/examples/report.yaml")));
}
