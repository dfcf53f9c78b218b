//! As much of XML as the pictures use: elements, attributes in double quotes, words, comments.

use std::collections::BTreeMap;

/// An element and what is in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) attributes: BTreeMap<String, String>,
    /// The words directly in it.
    pub(super) words: String,
    pub(super) children: Vec<Self>,
}

/// Reads a document.
///
/// # Errors
/// What is not understood.
pub(super) fn parse(mut text: &str) -> Result<Element, String> {
    let mut open = vec![Element::default()];
    while let Some((words, rest)) = text.split_once('<') {
        let here = open.last_mut().ok_or("an element is closed twice")?;
        here.words += &plain(words);
        if let Some(rest) = rest.strip_prefix("!--") {
            text = rest.split_once("-->").ok_or("a comment does not end")?.1;
            continue;
        }
        let (tag, rest) = rest.split_once('>').ok_or("a tag does not end")?;
        text = rest;
        if let Some(name) = tag.strip_prefix('/') {
            close(&mut open, name)?;
        } else {
            let (tag, is_empty) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            let element = element(tag)?;
            let name = element.name.clone();
            open.push(element);
            if is_empty {
                close(&mut open, &name)?;
            }
        }
    }
    match open.as_mut_slice() {
        [document] if document.children.len() == 1 => Ok(document.children.remove(0)),
        [_] => Err("a document has one element".to_owned()),
        _ => Err("an element is not closed".to_owned()),
    }
}

fn close(open: &mut Vec<Element>, name: &str) -> Result<(), String> {
    let closed = open.pop().filter(|closed| closed.name == name);
    let (Some(closed), Some(parent)) = (closed, open.last_mut()) else {
        return Err(format!("</{name}> closes nothing"));
    };
    parent.children.push(closed);
    Ok(())
}

fn element(tag: &str) -> Result<Element, String> {
    let (name, mut rest) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
    let mut attributes = BTreeMap::new();
    while let Some((key, value)) = rest.split_once("=\"") {
        let (value, after) = value
            .split_once('"')
            .ok_or_else(|| format!("<{tag}>: a value does not end"))?;
        attributes.insert(key.trim().to_owned(), plain(value));
        rest = after;
    }
    if !rest.trim().is_empty() {
        return Err(format!("<{tag}>: `{rest}` is no attribute"));
    }
    Ok(Element {
        name: name.to_owned(),
        attributes,
        ..Element::default()
    })
}

fn plain(text: &str) -> String {
    text.replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&quot;", "\"")
        .replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_in_each_other() {
        let root = parse("<a b=\"1 &amp; 2\"><!-- <no> --><c>d &lt; e</c><f/></a>\n").unwrap();
        assert_eq!(root.attributes["b"], "1 & 2");
        let names: Vec<_> = root.children.iter().map(|child| child.name.as_str()).collect();
        assert_eq!(
            (names, root.children[0].words.as_str()),
            (vec!["c", "f"], "d < e")
        );
    }

    #[test]
    fn what_is_not_closed_or_closed_twice_is_refused() {
        for text in ["<a><b></a>", "<a>", "<a/></a>", "<a b=\"></a>", "<a b></a>"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
