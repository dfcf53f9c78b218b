//! Links of the documentation, and references to it in code and charts, have existing targets.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockkeeper_documents::{Page, files, normal, read, root};

/// Pages elsewhere are generated from these, and are checked there.
const TEMPLATES: [&str; 2] = ["crds/src/reference.md", "page.md"];

fn is_template(file: &Path) -> bool {
    TEMPLATES.iter().any(|template| file.ends_with(template))
}

fn pages() -> BTreeMap<PathBuf, Page> {
    let pages = files()
        .into_iter()
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    pages
        .map(|file| (file.clone(), Page::parse(&read(&file))))
        .collect()
}

/// Returns the fault of a link to `path` and `anchor`, if there is one.
fn fault(pages: &BTreeMap<PathBuf, Page>, path: &Path, anchor: Option<&str>) -> Option<&'static str> {
    if !root().join(path).exists() {
        return Some("there is no such file");
    }
    let page = pages.get(path)?;
    anchor
        .is_some_and(|anchor| !page.anchors.contains(anchor))
        .then_some("that page has no such heading")
}

#[test]
fn every_link_of_a_page_leads_to_a_file_and_a_heading() {
    let pages = pages();
    let mut wrong = Vec::new();
    for (file, page) in pages.iter().filter(|(file, _)| !is_template(file)) {
        for link in &page.links {
            // Another site, or a page that GitHub generates.
            if link.contains("://") || link.starts_with("mailto:") || link.contains("security/advisories") {
                continue;
            }
            let (path, anchor) = match link.split_once('#') {
                Some((path, anchor)) => (path, Some(anchor)),
                None => (link.as_str(), None),
            };
            let folder = file.parent().expect("a file is in a folder");
            let path = if path.is_empty() {
                file.clone()
            } else {
                normal(&folder.join(path))
            };
            if let Some(fault) = fault(&pages, &path, anchor) {
                wrong.push(format!("{}: {link}: {fault}", file.display()));
            }
        }
    }
    assert!(pages.len() > 20 && wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_page_and_heading_that_code_or_a_chart_names_is_there() {
    let pages = pages();
    let (mut named, mut wrong) = (0, Vec::new());
    for file in files() {
        let kinds = ["rs", "yaml", "yml", "json", "txt", "tpl", "sh", "toml"];
        let Some(kind) = file.extension().and_then(|extension| extension.to_str()) else {
            continue;
        };
        if !kinds.contains(&kind) || file.ends_with("tests/links.rs") {
            continue;
        }
        let text = read(&file);
        for (at, _) in text.match_indices("docs/") {
            let allowed = |letter: char| letter.is_ascii_alphanumeric() || "/_-.#".contains(letter);
            let reference = text[at..]
                .split(|letter| !allowed(letter))
                .next()
                .unwrap_or_default();
            let Some((path, rest)) = reference.split_once(".md") else {
                continue;
            };
            let path = PathBuf::from(format!("{path}.md"));
            let anchor = rest
                .strip_prefix('#')
                .map(|anchor| anchor.trim_end_matches(['.', '#']));
            named += 1;
            if let Some(fault) = fault(&pages, &path, anchor.filter(|anchor| !anchor.is_empty())) {
                wrong.push(format!("{}: {reference}: {fault}", file.display()));
            }
        }
    }
    assert!(named > 100 && wrong.is_empty(), "{named} named, {wrong:#?}");
}
