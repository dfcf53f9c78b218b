//! Where a file of the repository is on the site, and what a link of a page becomes there.

use std::path::{Path, PathBuf};

use crate::repository::{normal, root};

/// Where links lead to files of the repository that are not on the site.
#[derive(Clone, Debug)]
pub enum Sources {
    /// Into this checkout: a reader sees the site on the machine that has built it.
    Checkout,
    /// To a commit of the repository on GitHub.
    Published {
        /// The address of the repository, such as `https://github.com/OWNER/NAME`.
        repository: String,
        commit: String,
    },
}

/// What a link becomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) link: String,
    /// The file of the repository that has to be on the site for it, if it is no page.
    pub(super) attached: Option<PathBuf>,
}

/// GitHub's form for vulnerabilities, which pages name by a path beside the files of the repository.
const FORM: &str = "security/advisories";

/// The path of a file on the site, before mdBook makes HTML of a page. What is in `docs` is at the top.
pub fn on_site(file: &Path) -> PathBuf {
    let placed = file.strip_prefix("docs").unwrap_or(file);
    if placed.ends_with("README.md") {
        return placed.with_file_name("index.md");
    }
    placed.to_owned()
}

/// What a link of a page becomes on the site with these pages.
pub(super) fn target(pages: &[PathBuf], sources: &Sources, page: &Path, link: &str) -> Target {
    let unchanged = link.starts_with('#') || link.contains("://") || link.starts_with("mailto:");
    if unchanged {
        return Target {
            link: link.to_owned(),
            attached: None,
        };
    }
    let (path, anchor) = link.split_at(link.find('#').unwrap_or(link.len()));
    let file = normal(&page.parent().unwrap_or(Path::new("")).join(path));
    let is_page = pages.contains(&file);
    let is_attached = !is_page && file.starts_with("docs") && root().join(&file).is_file();
    let place = if is_page || is_attached {
        relative(&on_site(page), &on_site(&file))
    } else {
        sources.address(&file)
    };
    Target {
        link: place + anchor,
        attached: is_attached.then_some(file),
    }
}

/// The way from one file of the site to another.
fn relative(from: &Path, to: &Path) -> String {
    "../".repeat(from.components().count().saturating_sub(1)) + &to.to_string_lossy()
}

// === impl Sources ===

impl Sources {
    /// The address of a file of the repository.
    fn address(&self, file: &Path) -> String {
        let path = file.display();
        match self {
            Self::Checkout if file.starts_with(FORM) => format!("file://{}/SECURITY.md", root().display()),
            // By no relative path: mdBook takes that for one of its pages.
            Self::Checkout => format!("file://{}/{path}", root().display()),
            Self::Published { repository, .. } if file.starts_with(FORM) => format!("{repository}/{path}"),
            Self::Published { repository, commit } => {
                let kind = if root().join(file).is_dir() {
                    "tree"
                } else {
                    "blob"
                };
                format!("{repository}/{kind}/{commit}/{path}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(page: &str, link: &str, sources: &Sources) -> String {
        let pages = ["README.md", "docs/faq.md", "docs/decisions/README.md"].map(PathBuf::from);
        target(&pages, sources, Path::new(page), link).link
    }

    fn published() -> Sources {
        Sources::Published {
            repository: "https://example.org/o/n".to_owned(),
            commit: "abc".to_owned(),
        }
    }

    #[test]
    fn links_between_pages_lead_from_page_to_page_of_the_site() {
        for (page, before, after) in [
            ("README.md", "docs/faq.md#times", "faq.md#times"),
            ("docs/faq.md", "../README.md", "index.md"),
            ("docs/faq.md", "decisions/README.md", "decisions/index.md"),
            ("docs/decisions/README.md", "../faq.md", "../faq.md"),
            ("docs/faq.md", "#times", "#times"),
            (
                "docs/faq.md",
                "https://example.org/faq.md",
                "https://example.org/faq.md",
            ),
        ] {
            assert_eq!(link(page, before, &published()), after);
        }
    }

    #[test]
    fn other_files_are_found_in_the_repository() {
        let at = |page, before| link(page, before, &published());
        let file = at("docs/faq.md", "../crds/Cargo.toml");
        assert_eq!(file, "https://example.org/o/n/blob/abc/crds/Cargo.toml");
        let folder = at("docs/decisions/README.md", "../../lock/fake/");
        assert_eq!(folder, "https://example.org/o/n/tree/abc/lock/fake");
        let form = at("SECURITY.md", "../../security/advisories/new");
        assert_eq!(form, "https://example.org/o/n/security/advisories/new");
    }

    #[test]
    fn without_an_address_other_files_are_found_in_the_checkout() {
        let file = link("docs/faq.md", "../Cargo.toml", &Sources::Checkout);
        assert_eq!(file, format!("file://{}", root().join("Cargo.toml").display()));
    }

    #[test]
    fn what_the_documentation_shows_besides_pages_is_brought_to_the_site() {
        let page = Path::new("README.md");
        let shown = target(&[], &Sources::Checkout, page, "docs/pictures/parts-light.svg");
        assert_eq!(shown.link, "pictures/parts-light.svg");
        assert_eq!(
            shown.attached.as_deref(),
            Some(Path::new("docs/pictures/parts-light.svg"))
        );
    }
}
