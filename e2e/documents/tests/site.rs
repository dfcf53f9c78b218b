//! The site of the documentation has every page, and its list leads to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lockkeeper_documents::{Page, SUMMARY, Sources, files, listed, normal, on_site, read, write_site};

/// Pages at the top that readers of the site need too.
const OF_THE_TOP: [&str; 4] = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"];

#[test]
fn every_page_of_the_documentation_is_on_the_site_once() {
    let is_page = |file: &PathBuf| {
        let is_markdown = file.extension().is_some_and(|kind| kind == "md");
        let is_of_the_top = OF_THE_TOP.iter().any(|name| file == Path::new(name));
        is_of_the_top || (is_markdown && file.starts_with("docs") && file != Path::new(SUMMARY))
    };
    let mut pages: Vec<_> = files().into_iter().filter(is_page).collect();
    let mut on_site = listed();
    assert_eq!(on_site[0], Path::new("README.md"), "the first page is the readme");
    pages.sort();
    on_site.sort();
    assert!(pages.len() > 40, "{pages:?}");
    assert_eq!(on_site, pages, "{SUMMARY} has to list each page once");
}

#[test]
fn what_mdbook_gets_has_no_link_that_leads_out_of_the_site_but_to_the_repository() {
    let folder = tempfile::tempdir().unwrap();
    let sources = Sources::Published {
        repository: "https://example.org/o/n".to_owned(),
        commit: "abc".to_owned(),
    };
    write_site(folder.path(), &sources).unwrap();
    let pages = folder.path().join("pages");
    let mut read_pages = BTreeMap::new();
    for file in listed() {
        let placed = on_site(&file);
        let text = std::fs::read_to_string(pages.join(&placed)).unwrap();
        read_pages.insert(placed, (Page::parse(&text), Page::parse(&read(&file)).anchors));
    }
    let mut wrong = Vec::new();
    let mut followed = 0;
    for (file, (page, anchors)) in &read_pages {
        assert_eq!(&page.anchors, anchors, "{}", file.display());
        for link in page.links.iter().filter(|link| !link.contains("://")) {
            let path = link.split('#').next().unwrap_or_default();
            let target = normal(&file.parent().unwrap().join(path));
            followed += 1;
            if !path.is_empty() && !pages.join(&target).is_file() {
                wrong.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(
        followed > 1000 && wrong.is_empty(),
        "{followed} followed, {wrong:#?}"
    );
}
