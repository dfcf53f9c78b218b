//! The map of all modules, `docs/modules.md`.

use std::fmt::Write as _;
use std::path::Path;

use crate::modules::{Crate, Module, crates};
use crate::repository::read;

pub const MAP: &str = "docs/modules.md";

const BEGIN: &str = "<!-- begin: written by `make map` -->\n";
const END: &str = "<!-- end: written by `make map` -->\n";

/// The page with the present map of the code between its markers.
///
/// # Errors
/// When the page does not have the markers.
pub fn written() -> Result<String, String> {
    let page = read(Path::new(MAP));
    let fault = || format!("{MAP} has to contain the lines {BEGIN}and {END}");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(fault)?;
    let (_, after) = rest.split_once(END).ok_or_else(fault)?;
    Ok(format!("{before}{BEGIN}{}{END}{after}", map(&crates())))
}

/// A section for each package, and a row for each module that is not only for tests.
fn map(crates: &[Crate]) -> String {
    let mut map = String::new();
    for package in crates.chunk_by(|one, other| one.folder == other.folder) {
        let folder = &package[0].folder;
        let _ = write!(map, "\n## `{}/`\n\n| module | |\n|---|---|\n", folder.display());
        let modules = package.iter().flat_map(|of| &of.modules);
        for module in modules.filter(|module| !module.is_test) {
            map.push_str(&row(folder, module));
        }
    }
    map.push('\n');
    map
}

fn row(folder: &Path, module: &Module) -> String {
    let file = module
        .file
        .strip_prefix(folder.join("src"))
        .unwrap_or(&module.file);
    let about = without_links(&module.about()).replace('|', "\\|");
    format!(
        "| [`{}`](../{}) | {about} |\n",
        file.display(),
        module.file.display()
    )
}

/// Replaces links of Rust's documentation, which lead nowhere outside of it, by their names.
fn without_links(text: &str) -> String {
    let mut parts = text.split("[`");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once("`]").unwrap_or((part, ""));
        let target = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let _ = write!(plain, "`{name}`{}", target.map_or(rest, |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_remain_of_links() {
        assert_eq!(
            without_links("A [`B`](crate::B), [`c`] (see `d`)."),
            "A `B`, `c` (see `d`)."
        );
    }
}
