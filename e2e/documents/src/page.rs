//! A page of the documentation: its headings and its links.

use std::collections::{BTreeMap, BTreeSet};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A page in Markdown.
#[derive(Debug, Default)]
pub struct Page {
    /// The anchors that a link can name behind `#`.
    pub anchors: BTreeSet<String>,
    /// The targets of its links and pictures, as they are written.
    pub links: Vec<String>,
}

impl Page {
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let mut seen = BTreeMap::<String, u32>::new();
        for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    let before = seen.entry(anchor.clone()).or_default();
                    page.anchors.insert(match *before {
                        0 => anchor,
                        count => format!("{anchor}-{count}"),
                    });
                    *before += 1;
                }
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(dest_url.into_string());
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    let mut ids = html.split("id=\"").skip(1);
                    page.anchors.extend(
                        ids.by_ref()
                            .filter_map(|id| id.split('"').next())
                            .map(str::to_owned),
                    );
                }
                _ => {}
            }
        }
        page
    }
}

/// The anchor that GitHub makes of a heading: lower case, without punctuation, with hyphens for spaces.
fn anchor(heading: &str) -> String {
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    let lower = heading.trim().to_lowercase();
    lower
        .chars()
        .filter(kept)
        .map(|letter| if letter == ' ' { '-' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_are_named_as_on_github() {
        let page = Page::parse(
            "# `lockkeeper run`: what, & why?\n## Again\n## Again\n<a id=\"own\"></a>\n```\n# none\n```\n",
        );
        let anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(anchors, ["again", "again-1", "lockkeeper-run-what--why", "own"]);
    }

    #[test]
    fn links_in_tables_and_pictures_count_and_those_in_code_do_not() {
        let page = Page::parse("| a |\n|---|\n| [b](c.md#d) |\n\n![e](f.svg) `[g](h.md)`\n");
        assert_eq!(page.links, ["c.md#d", "f.svg"]);
    }
}
