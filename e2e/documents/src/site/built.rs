//! What is wrong with a site that mdBook has built: dead links, and files that would come from elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

use crate::repository::normal;

/// What was looked at, and what was wrong.
#[derive(Debug, Default)]
pub struct Faults {
    pub pages: usize,
    pub links: usize,
    /// Each in one line.
    pub faults: Vec<String>,
}

/// An element that begins; values may hold a `>`.
static ELEMENT: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"<([a-zA-Z][a-zA-Z0-9-]*)((?:[^">]|"[^"]*")*)>"#).unwrap());
static ATTRIBUTE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"\s(id|href|src|srcset)="([^"]*)""#).unwrap());
/// The text of a script is no HTML.
static SCRIPT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?s)(<script[^>]*>).*?</script>").unwrap());
/// What a style sheet fetches.
static FETCHED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"(?:@import\s*|url\(\s*)["']?([a-z]+:)?//"#).unwrap());

/// A page of the site.
#[derive(Debug, Default)]
struct Html {
    ids: BTreeSet<String>,
    /// Each with whether the browser fetches it to show the page.
    links: Vec<(String, bool)>,
}

/// Reads all pages and style sheets of a site.
///
/// # Errors
/// When a file cannot be read.
pub fn faults(site: &Path) -> Result<Faults, String> {
    let files = below(site)?;
    let with = |wanted: &'static str| {
        let files = files.iter();
        files.filter(move |file| file.extension().is_some_and(|kind| kind == wanted))
    };
    let mut pages = BTreeMap::new();
    for file in with("html") {
        pages.insert(file.clone(), Html::parse(&text(file)?));
    }
    let mut found = Faults {
        pages: pages.len(),
        ..Faults::default()
    };
    for (file, page) in &pages {
        let shown = file.strip_prefix(site).unwrap_or(file).display();
        for (link, is_fetched) in &page.links {
            found.links += 1;
            if let Some(fault) = fault(&pages, file, link, *is_fetched) {
                found.faults.push(format!("{shown}: {link}: {fault}"));
            }
        }
    }
    for file in with("css") {
        if FETCHED.is_match(&text(file)?) {
            let shown = file.strip_prefix(site).unwrap_or(file).display();
            found
                .faults
                .push(format!("{shown}: it fetches a file from another site"));
        }
    }
    Ok(found)
}

fn text(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("cannot read {}: {error}", file.display()))
}

/// All files below a folder.
fn below(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let fault = |error| format!("cannot read {}: {error}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fault)? {
        let path = entry.map_err(fault)?.path();
        if path.is_dir() {
            files.extend(below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}

/// Returns what is wrong with a link of a page, if anything is.
fn fault(pages: &BTreeMap<PathBuf, Html>, page: &Path, link: &str, is_fetched: bool) -> Option<&'static str> {
    if let Some(file) = link.strip_prefix("file://") {
        let file = file.split('#').next().unwrap_or_default();
        return (!Path::new(file).exists()).then_some("there is no such file");
    }
    if link.contains("://") || link.starts_with("//") {
        return is_fetched.then_some("it is fetched from another site");
    }
    if link.starts_with("mailto:") || link.starts_with("data:") {
        return None;
    }
    if link.starts_with('/') {
        return Some("it leads to the root of the site's machine, and the site may be below");
    }
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (link, None),
    };
    let mut file = if path.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent()?.join(path))
    };
    if !file.exists() {
        return Some("there is no such file");
    }
    if path.ends_with('/') {
        file = file.join("index.html");
    }
    let target = pages.get(&file)?;
    anchor
        .is_some_and(|anchor| !anchor.is_empty() && !target.ids.contains(anchor))
        .then_some("that page has no such anchor")
}

// === impl Html ===

impl Html {
    fn parse(text: &str) -> Self {
        let text = SCRIPT.replace_all(text, "$1");
        let mut page = Self::default();
        for element in ELEMENT.captures_iter(&text) {
            let is_fetched = !element[1].eq_ignore_ascii_case("a");
            for attribute in ATTRIBUTE.captures_iter(&element[2]) {
                let value = attribute[2].replace("&amp;", "&");
                if &attribute[1] == "id" {
                    page.ids.insert(value);
                } else {
                    page.links.push((value, is_fetched));
                }
            }
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a site that has a page with this body, and a page `other.html`, which has the anchor `there`.
    fn faults_of(body: &str) -> Vec<String> {
        let site = tempfile::tempdir().unwrap();
        std::fs::write(site.path().join("other.html"), "<h2 id=\"there\">There</h2>").unwrap();
        std::fs::write(site.path().join("page.html"), body).unwrap();
        let found = faults(site.path()).unwrap();
        assert_eq!(found.pages, 2);
        found.faults
    }

    #[test]
    fn a_dead_link_and_a_dead_anchor_are_found() {
        let good = [
            "<a title=\"a > b\" href=\"other.html#there\">t</a><a href=\"https://example.org\">e</a>",
            "<p id=\"here\"><a href=\"#here\">h</a><a href=\"page.html\">p</a>",
            "<script>x = '<a href=\"none.html\">'</script><code>&lt;a href=\"none.html\"&gt;</code>",
        ];
        assert_eq!(faults_of(&good.concat()), Vec::<String>::new());
        for bad in [
            "none.html",
            "other.html#gone",
            "#gone",
            "/other.html",
            "file:///none",
        ] {
            let faults = faults_of(&format!("<a href=\"{bad}\">b</a>"));
            assert_eq!(faults.len(), 1, "{bad}: {faults:?}");
            assert!(
                faults[0].starts_with(&format!("page.html: {bad}: ")),
                "{faults:?}"
            );
        }
    }

    #[test]
    fn what_a_page_would_fetch_from_another_site_is_found() {
        for bad in [
            "<img src=\"https://example.org/a.svg\">",
            "<link rel=\"stylesheet\" href=\"//example.org/a.css\">",
            "<script async src=\"https://example.org/a.js\"></script>",
        ] {
            assert_eq!(faults_of(bad).len(), 1, "{bad}");
        }
        assert!(FETCHED.is_match("@import url(https://example.org/font.css)"));
        assert!(FETCHED.is_match("src: url('//example.org/a.woff2')"));
        assert!(!FETCHED.is_match("src: url(\"open-sans.woff2\")"));
    }
}
