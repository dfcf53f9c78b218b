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
    /// The targets of its pictures in Markdown, as they are written.
    pub images: Vec<String>,
    /// Its pictures in HTML that have a file for each theme.
    pub pictures: Vec<Shown>,
}

/// A picture that a page shows by `<picture>`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// The condition under which `dark` is shown.
    pub media: String,
    pub dark: String,
    pub light: String,
    /// What it shows, in words.
    pub alternative: String,
}

impl Page {
    pub fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut heading: Option<String> = None;
        let mut markup = String::new();
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
                Event::Start(Tag::Link { dest_url, .. }) => page.links.push(dest_url.into_string()),
                Event::Start(Tag::Image { dest_url, .. }) => {
                    page.images.push(dest_url.to_string());
                    page.links.push(dest_url.into_string());
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    let mut ids = html.split("id=\"").skip(1);
                    page.anchors.extend(
                        ids.by_ref()
                            .filter_map(|id| id.split('"').next())
                            .map(str::to_owned),
                    );
                    page.links
                        .extend(values(&html, "src").chain(values(&html, "srcset")));
                    markup.push_str(&html);
                }
                _ => {}
            }
        }
        page.pictures = shown(&markup);
        page
    }
}

/// The pictures in the HTML of a page.
fn shown(markup: &str) -> Vec<Shown> {
    let pictures = markup.split("<picture>").skip(1);
    let value = |of: &str, name: &str| values(of, name).next().unwrap_or_default();
    pictures
        .filter_map(|rest| rest.split_once("</picture>"))
        .map(|(picture, _)| Shown {
            media: value(picture, "media"),
            dark: value(picture, "srcset"),
            light: value(picture, "src"),
            alternative: value(picture, "alt"),
        })
        .collect()
}

/// The values of an attribute.
fn values(html: &str, name: &str) -> impl Iterator<Item = String> {
    let start = format!(" {name}=\"");
    let values: Vec<_> = html.split(&start).skip(1).collect();
    let values = values.into_iter().filter_map(|rest| rest.split('"').next());
    values.map(str::to_owned).collect::<Vec<_>>().into_iter()
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
        assert_eq!(page.images, ["f.svg"]);
    }

    #[test]
    fn a_picture_has_a_file_for_each_theme_and_an_alternative() {
        let line =
            "<picture><source media=\"m\" srcset=\"b.svg\"><img alt=\"What it is\" src=\"a.svg\"></picture>";
        let lines = line.replace("><", ">\n<");
        for text in [line, lines.as_str()] {
            let page = Page::parse(&format!("Words.\n\n{text}\n\n`<picture>`\n"));
            let shown = Shown {
                media: "m".to_owned(),
                dark: "b.svg".to_owned(),
                light: "a.svg".to_owned(),
                alternative: "What it is".to_owned(),
            };
            assert_eq!(page.pictures, [shown], "{text}");
            assert_eq!(page.links, ["b.svg", "a.svg"]);
        }
    }
}
