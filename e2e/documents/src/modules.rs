//! The modules of all crates of the workspace, found as the compiler finds them: from `mod NAME;` to the file.

use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::repository::{files, read};

/// A library or a program of the workspace.
#[derive(Debug)]
pub struct Crate {
    /// Folder of its `Cargo.toml`, in the repository.
    pub folder: PathBuf,
    /// Its modules, each before those below it, beginning with the root.
    pub modules: Vec<Module>,
}

/// A module that has a file.
#[derive(Debug)]
pub struct Module {
    /// Its names from the root of the crate: `["guard", "schedule"]`; empty for the root.
    pub path: Vec<String>,
    /// Its file, in the repository.
    pub file: PathBuf,
    /// Whether it is compiled only for tests.
    pub is_test: bool,
}

/// All crates of the workspace: the library, then `main.rs`, then each file in `src/bin`, package by package.
///
/// # Panics
/// When a file cannot be read, is not Rust, or declares a module that has no file.
pub fn crates() -> Vec<Crate> {
    let files = files();
    let is_root = |file: &&PathBuf| {
        let Some(folder) = file.parent() else { return false };
        let is_target = folder.ends_with("src") && (file.ends_with("lib.rs") || file.ends_with("main.rs"));
        let is_program = folder.ends_with("src/bin") && file.extension().is_some_and(|kind| kind == "rs");
        (is_target || is_program) && files.contains(&package(file).join("Cargo.toml"))
    };
    let mut roots: Vec<_> = files.iter().filter(is_root).collect();
    roots.sort_by_key(|file| (package(file), file.components().count(), (*file).clone()));
    roots.into_iter().map(|root| Crate::read(root)).collect()
}

/// The folder above `src`.
fn package(file: &Path) -> PathBuf {
    let is_src = |folder: &&Path| folder.ends_with("src");
    let src = file.ancestors().find(is_src);
    src.and_then(Path::parent).unwrap_or(Path::new("")).to_owned()
}

// === impl Crate ===

impl Crate {
    fn read(root: &Path) -> Self {
        let mut modules = Vec::new();
        let below = root.parent().unwrap_or(Path::new("")).to_owned();
        add(
            Module::new(Vec::new(), root.to_owned(), false),
            &below,
            &mut modules,
        );
        Self {
            folder: package(root),
            modules,
        }
    }
}

/// Adds `module`, and the modules below it, whose files are in the folder `below`.
fn add(module: Module, below: &Path, modules: &mut Vec<Module>) {
    let declared = Declared::all(module.tokens());
    let (path, is_test) = (module.path.clone(), module.is_test);
    modules.push(module);
    for declared in declared {
        let path = [&path[..], std::slice::from_ref(&declared.name)].concat();
        let file = below.join(format!("{}.rs", declared.name));
        let module = Module::new(path, file, is_test || declared.is_test);
        add(module, &below.join(&declared.name), modules);
    }
}

// === impl Module ===

impl Module {
    fn new(path: Vec<String>, file: PathBuf, is_test: bool) -> Self {
        Self { path, file, is_test }
    }

    /// The file as the compiler reads it.
    pub(crate) fn tokens(&self) -> TokenStream {
        let parsed = read(&self.file).parse();
        parsed.unwrap_or_else(|error| panic!("{} is not Rust: {error}", self.file.display()))
    }

    /// The first sentence of the comment with which the file begins; empty if it begins otherwise.
    pub fn about(&self) -> String {
        let text = read(&self.file);
        let comment = text.lines().map_while(|line| line.strip_prefix("//!"));
        let paragraph: Vec<_> = comment
            .map(str::trim)
            .take_while(|line| !line.is_empty())
            .collect();
        let paragraph = paragraph.join(" ");
        let ends = paragraph.match_indices(". ").map(|(at, _)| at);
        let end = ends
            .into_iter()
            .find(|at| paragraph[at + 2..].starts_with(|next: char| !next.is_lowercase()));
        paragraph[..end.unwrap_or(paragraph.len())]
            .trim_end_matches('.')
            .to_owned()
    }
}

/// `mod NAME;`
struct Declared {
    name: String,
    is_test: bool,
}

// === impl Declared ===

impl Declared {
    /// The declared modules of a file. (In this workspace no module with a file is declared inside another
    /// module's braces.)
    fn all(tokens: TokenStream) -> Vec<Self> {
        let tokens: Vec<_> = tokens.into_iter().collect();
        let mut found = Vec::new();
        let mut is_test = false;
        for (at, token) in tokens.iter().enumerate() {
            match (token, tokens.get(at + 1), tokens.get(at + 2)) {
                (TokenTree::Group(group), ..) if is_cfg_test(group) => is_test = true,
                (TokenTree::Group(group), ..) if group.delimiter() == Delimiter::Brace => is_test = false,
                (TokenTree::Punct(end), ..) if end.as_char() == ';' => is_test = false,
                (TokenTree::Ident(word), Some(TokenTree::Ident(name)), Some(TokenTree::Punct(end)))
                    if word == "mod" && end.as_char() == ';' =>
                {
                    found.push(Self {
                        name: name.to_string(),
                        is_test,
                    });
                }
                _ => {}
            }
        }
        found
    }
}

/// `[cfg(test)]`, as it stands behind `#`.
pub(crate) fn is_cfg_test(group: &proc_macro2::Group) -> bool {
    let words = group.stream().to_string().replace(' ', "");
    group.delimiter() == Delimiter::Bracket && (words == "cfg(test)" || words.starts_with("cfg(all(test,"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_with_a_file_are_found_and_those_of_tests_are_known_as_such() {
        let text = "//! A.\nuse a::b;\nmod one;\n#[cfg(test)]\nmod two;\npub mod three;\nmod four { const A: u8 = 1; }";
        let found = Declared::all(text.parse().unwrap());
        let found: Vec<_> = found
            .iter()
            .map(|declared| (&*declared.name, declared.is_test))
            .collect();
        assert_eq!(found, [("one", false), ("two", true), ("three", false)]);
    }
}
