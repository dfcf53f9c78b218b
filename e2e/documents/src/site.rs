//! The site of the documentation: the pages as mdBook takes them, and the check of what it makes of them.

mod built;
mod links;
mod place;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::page::Page;
use crate::repository::{normal, read, root};

pub use built::{Faults, faults};
pub use place::{Sources, on_site};

/// The list of the site's pages, in the form of mdBook.
pub const SUMMARY: &str = "docs/SUMMARY.md";

/// Files of the site besides pages: mdBook's settings, and what it adds to each page.
const SETTINGS: [&str; 3] = ["book.toml", "site.css", "pictures.js"];

/// The project's logo, and where mdBook looks for the icon of the site.
const LOGO: [&str; 2] = ["charts/logo.svg", "theme/favicon.svg"];

/// The pages of the site, by their file in the repository, in the order of the list.
pub fn listed() -> Vec<PathBuf> {
    let folder = Path::new(SUMMARY).parent().unwrap_or(Path::new(""));
    let links = Page::parse(&read(Path::new(SUMMARY))).links;
    links.iter().map(|link| normal(&folder.join(link))).collect()
}

/// Writes into a folder what mdBook makes the site from: its settings, and all pages, with links that fit the site.
///
/// # Errors
/// When a page has a link of a kind that is not known here, or a file cannot be read or written.
pub fn write(folder: &Path, sources: &Sources) -> Result<(), String> {
    let pages = listed();
    let mut attached = BTreeSet::new();
    for page in pages.iter().map(PathBuf::as_path).chain([Path::new(SUMMARY)]) {
        let target = |link: &str| {
            let target = place::target(&pages, sources, page, link);
            attached.extend(target.attached);
            target.link
        };
        let text =
            links::rewrite(&read(page), target).map_err(|error| format!("{}: {error}", page.display()))?;
        store(&folder.join("pages").join(place::on_site(page)), text.as_bytes())?;
    }
    for file in attached {
        copy(
            &root().join(&file),
            &folder.join("pages").join(place::on_site(&file)),
        )?;
    }
    for name in SETTINGS {
        copy(&root().join("e2e/documents/site").join(name), &folder.join(name))?;
    }
    let [logo, icon] = LOGO;
    copy(&root().join(logo), &folder.join(icon))?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let bytes = std::fs::read(from).map_err(|error| format!("cannot read {}: {error}", from.display()))?;
    store(to, &bytes)
}

fn store(file: &Path, bytes: &[u8]) -> Result<(), String> {
    let fault = |error| format!("cannot write {}: {error}", file.display());
    std::fs::create_dir_all(file.parent().unwrap_or(Path::new(""))).map_err(fault)?;
    std::fs::write(file, bytes).map_err(fault)
}
