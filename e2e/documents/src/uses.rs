//! The paths that a module of Rust names, in `use` declarations and in code.

use std::iter::Peekable;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::modules::is_cfg_test;

/// A path in a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// Its parts: `["crate", "lock", "Reason"]`.
    pub(crate) path: Vec<String>,
    /// The name that the module has for it from then on, if this is a `use` declaration of the module.
    pub(crate) name: Option<String>,
}

type Tokens = Peekable<<TokenStream as IntoIterator>::IntoIter>;

/// All paths in a module, without those in code that is compiled only for tests.
pub(crate) fn used(tokens: TokenStream) -> Vec<Used> {
    let mut used = Vec::new();
    walk(tokens, &mut used);
    used
}

fn walk(tokens: TokenStream, used: &mut Vec<Used>) {
    let mut tokens: Tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Group(group) if is_cfg_test(&group) => skip_item(&mut tokens),
            TokenTree::Group(group) => walk(group.stream(), used),
            // `impl Trait + use<T>` is no declaration.
            TokenTree::Ident(word) if word == "use" && !is_mark(&mut tokens, '<') => {
                declaration(Vec::new(), &mut tokens, used)
            }
            TokenTree::Ident(word) if word == "mod" => within(&mut tokens, used),
            TokenTree::Ident(word) => {
                let mut path = vec![word.to_string()];
                while is_separator(&mut tokens)
                    && let Some(TokenTree::Ident(part)) = tokens.peek()
                {
                    path.push(part.to_string());
                    tokens.next();
                }
                if path.len() > 1 {
                    used.push(Used { path, name: None });
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Skips the item that an attribute belongs to.
fn skip_item(tokens: &mut Tokens) {
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(end) if end.as_char() == ';' => return,
            TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => return,
            _ => {}
        }
    }
}

/// A module in braces: paths that it names one level up are named here.
fn within(tokens: &mut Tokens, used: &mut Vec<Used>) {
    let _name = tokens.next();
    let Some(TokenTree::Group(group)) = tokens.peek() else {
        return;
    };
    let mut inside = Vec::new();
    walk(group.stream(), &mut inside);
    tokens.next();
    for mut one in inside {
        match one.path[0].as_str() {
            "super" => one.path[0] = "self".to_owned(),
            "crate" => {}
            _ => continue,
        }
        used.push(Used { name: None, ..one });
    }
}

/// Takes `::`, if that is next. It takes a single colon too, which ends the path as well.
fn is_separator(tokens: &mut Tokens) -> bool {
    is_mark(tokens, ':') && is_mark(tokens, ':')
}

/// Takes a mark, if that is next.
fn is_mark(tokens: &mut Tokens, wanted: char) -> bool {
    let is_wanted = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == wanted);
    tokens.next_if(is_wanted).is_some()
}

/// Parses what follows `use`, or is between commas in its braces, behind `path`.
fn declaration(mut path: Vec<String>, tokens: &mut Tokens, used: &mut Vec<Used>) {
    let mut name = path.last().cloned();
    let above = path.clone();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(word) if word == "as" => name = tokens.next().map(|alias| alias.to_string()),
            TokenTree::Ident(word) if word == "self" && !path.is_empty() => {}
            TokenTree::Ident(word) => {
                path.push(word.to_string());
                name = path.last().cloned();
            }
            TokenTree::Group(group) => {
                let mut inside: Tokens = group.stream().into_iter().peekable();
                while inside.peek().is_some() {
                    declaration(path.clone(), &mut inside, used);
                }
                path.clear();
            }
            TokenTree::Punct(mark) if matches!(mark.as_char(), ';' | ',') => break,
            TokenTree::Punct(mark) if mark.as_char() == '*' => name = None,
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    if !path.is_empty() && (path != above || name.is_some()) {
        used.push(Used { path, name });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        let used = used(text.parse().unwrap());
        let shown = used.iter().map(|one| match &one.name {
            Some(name) => format!("{} as {name}", one.path.join("::")),
            None => one.path.join("::"),
        });
        shown.collect()
    }

    #[test]
    fn declarations_are_taken_apart() {
        let text = "use crate::{a::{self, B, c as d}, e::*};\npub(crate) use self::f::G;\nuse super::h;";
        let expected = [
            "crate::a as a",
            "crate::a::B as B",
            "crate::a::c as d",
            "crate::e",
            "self::f::G as G",
            "super::h as h",
        ];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn paths_in_code_count_and_those_of_tests_comments_and_texts_do_not() {
        let text = "/// [`crate::no`]\nfn f(x: crate::a::B) -> u8 { m!(super::c::d(\"crate::no\")); x::<u8>() }\n\
                    #[cfg(test)]\nmod tests { use super::*; use crate::no; }\nmod inner { use super::e::F; }";
        assert_eq!(paths(text), ["crate::a::B", "super::c::d", "self::e::F"]);
    }
}
