//! The links of a page, replaced in its text.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};

/// The attributes of HTML in pages that hold a link.
const ATTRIBUTES: [&str; 3] = ["href", "src", "srcset"];

/// The page with other links: `target` says what a link becomes.
///
/// # Errors
/// When a link has a form that is not replaced here: of references, or with escapes.
pub(super) fn rewrite(text: &str, mut target: impl FnMut(&str) -> String) -> Result<String, String> {
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(
                Tag::Link {
                    link_type, dest_url, ..
                }
                | Tag::Image {
                    link_type, dest_url, ..
                },
            ) => match link_type {
                LinkType::Inline => {
                    let place = inline(text, range, &dest_url)?;
                    edits.push((place, target(&dest_url)));
                }
                LinkType::Autolink | LinkType::Email => {}
                _ => {
                    return Err(format!(
                        "the link to {dest_url} is a reference: write [text](target)"
                    ));
                }
            },
            Event::Html(_) | Event::InlineHtml(_) => {
                for place in attributes(text, range) {
                    let link = target(&text[place.clone()]);
                    edits.push((place, link));
                }
            }
            _ => {}
        }
    }
    edits.sort_by_key(|(place, _)| place.start);
    let mut rewritten = text.to_owned();
    for (place, link) in edits.into_iter().rev() {
        rewritten.replace_range(place, &link);
    }
    Ok(rewritten)
}

/// Where the target of a link is in the text: at its end, behind the link's own text.
fn inline(text: &str, range: Range<usize>, link: &str) -> Result<Range<usize>, String> {
    let behind = text[range.clone()].rfind(&format!("]({link}"));
    let start = range.start
        + 2
        + behind.ok_or_else(|| format!("the link to {link} has escapes: write it plainly"))?;
    Ok(start..start + link.len())
}

/// Where the links are in a piece of HTML.
fn attributes(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    let html = &text[range.clone()];
    let starts = ATTRIBUTES.into_iter().flat_map(|name| {
        let begin = format!(" {name}=\"");
        html.match_indices(&begin)
            .map(|(at, begin)| at + begin.len())
            .collect::<Vec<_>>()
    });
    starts
        .filter_map(|start| Some(start..start + html[start..].find('"')?))
        .map(|place| range.start + place.start..range.start + place.end)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(text: &str) -> String {
        rewrite(text, |link| format!("<{link}>")).unwrap()
    }

    #[test]
    fn links_pictures_and_those_in_tables_are_replaced_and_nothing_else_is() {
        let text = "| [a](b.md) ![c](d.svg) |\n|---|\n| [`e`](f.md#g), `[h](i.md)` |\n\n```\n[j](k.md)\n```\n[b.md](b.md)";
        let expected = "| [a](<b.md>) ![c](<d.svg>) |\n|---|\n| [`e`](<f.md#g>), `[h](i.md)` |\n\n```\n[j](k.md)\n```\n[b.md](<b.md>)";
        assert_eq!(marked(text), expected);
    }

    #[test]
    fn pictures_of_both_themes_are_replaced() {
        let text = "<picture><source media=\"m\" srcset=\"b.svg\"><img alt=\"a src\" src=\"a.svg\"></picture>\n\nA <a href=\"c.md\">c</a>.\n";
        let expected = "<picture><source media=\"m\" srcset=\"<b.svg>\"><img alt=\"a src\" src=\"<a.svg>\"></picture>\n\nA <a href=\"<c.md>\">c</a>.\n";
        assert_eq!(marked(text), expected);
    }

    #[test]
    fn a_link_that_would_be_missed_is_refused() {
        for text in ["[a][b]\n\n[b]: c.md\n", "[a](b\\_c.md)"] {
            assert!(rewrite(text, str::to_owned).is_err(), "{text}");
        }
    }
}
