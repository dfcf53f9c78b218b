//! The rules in `e2e/rules/list/*.yaml`, and the check that they still fit the code.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The areas, in the order of the table; each is a file of its own, and this is the heading of its part.
pub const AREAS: [(&str, &str); 5] = [
    ("lock", "The lock"),
    ("keeper", "The keeper"),
    ("guard", "The guard"),
    ("admission", "Admission and the operator"),
    ("simulation", "What the simulation of the whole finds again"),
];

/// A safety rule, and how it is removed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The promise, in a sentence.
    pub rule: String,
    /// The page and section that promise it: `docs/safety.md#the-rule`.
    pub promised: String,
    /// The file with the code that keeps it.
    pub file: PathBuf,
    /// The code that keeps it, which occurs once in the file, with a mark around the removed part: `⟦…⟧`. An
    /// expression, or whole statements.
    pub code: String,
    /// The replacement of the marked part.
    pub without: String,
    /// The test that has to fail.
    pub test: Test,
    /// Variables of the test.
    #[serde(default)]
    pub with: BTreeMap<String, String>,
}

/// A test: `PACKAGE/TARGET/NAME`, where TARGET is `lib`, or a file of `tests`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Test {
    /// The crate: `lockkeeper-lock`.
    pub package: String,
    /// `lib` for the tests beside the code.
    pub target: String,
    /// Name of the function.
    pub name: String,
}

/// The rules of one area.
#[derive(Clone, Debug)]
pub struct Area {
    /// Its short name: that of its file.
    pub name: &'static str,
    pub heading: &'static str,
    /// In the order of the file.
    pub rules: Vec<Rule>,
}

impl TryFrom<String> for Test {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.split('/').collect::<Vec<_>>()[..] {
            [package, target, name] => Ok(Self {
                package: package.to_owned(),
                target: target.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(format!("a test is PACKAGE/TARGET/NAME, and not {text}")),
        }
    }
}

/// Reads the list below the root of the repository.
///
/// # Errors
/// When a file is missing, or is no list of rules.
pub fn read(root: &Path) -> Result<Vec<Area>> {
    let area = |(name, heading)| {
        let path = root.join(format!("e2e/rules/list/{name}.yaml"));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let rules =
            serde_saphyr::from_str(&text).with_context(|| format!("{} is no list", path.display()))?;
        Ok(Area { name, heading, rules })
    };
    AREAS.into_iter().map(area).collect()
}

impl Rule {
    /// The place of the removed part in the file.
    ///
    /// # Errors
    /// When the code is missing, occurs more than once, or has no mark.
    pub(crate) fn span(&self, content: &str) -> Result<Range<usize>> {
        let marked = self.code.split_once('⟦').and_then(|(before, rest)| {
            let (part, after) = rest.split_once('⟧')?;
            Some((before, part, after))
        });
        let (before, part, after) = marked.context("`code` has no part between ⟦ and ⟧")?;
        let code = [before, part, after].concat();
        let places: Vec<_> = content.match_indices(&code).collect();
        ensure!(
            places.len() == 1,
            "its code is {} times in {}, and has to be there once",
            places.len(),
            self.file.display()
        );
        let begin = places[0].0 + before.len();
        Ok(begin..begin + part.len())
    }

    /// Checks that the list fits what is below `root`: the text, the page with its section, and the test.
    ///
    /// # Errors
    /// The part that does not fit.
    pub fn check(&self, root: &Path) -> Result<()> {
        let read = |path: &Path| {
            fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {}", path.display()))
        };
        ensure!(self.rule.ends_with('.'), "it is no sentence");
        self.span(&read(&self.file)?)?;
        let (page, section) = self
            .promised
            .split_once('#')
            .context("`promised` names no section")?;
        let page = read(Path::new(page))?;
        ensure!(
            page.lines().filter_map(heading).any(|of_page| of_page == section),
            "there is no section {}",
            self.promised
        );
        let Test {
            package,
            target,
            name,
        } = &self.test;
        let text = format!("fn {name}(");
        let found: usize = self
            .test
            .sources(root)?
            .iter()
            .map(|source| source.matches(&text).count())
            .sum();
        ensure!(
            found == 1,
            "the test {name} is {found} times in {package}/{target}"
        );
        Ok(())
    }
}

impl Test {
    /// The folder of its package, in the repository at `root`.
    pub(crate) fn folder(&self, root: &Path) -> PathBuf {
        let name = self.package.trim_start_matches("lockkeeper-");
        let below_e2e = root.join("e2e").join(name);
        if below_e2e.is_dir() {
            below_e2e
        } else {
            root.join(name)
        }
    }

    /// The files in which it can be.
    fn sources(&self, root: &Path) -> Result<Vec<String>> {
        let package = self.folder(root);
        let mut paths = Vec::new();
        if self.target == "lib" {
            rust_files(&package.join("src"), &mut paths)?;
        } else {
            let of_target = package.join("tests").join(&self.target);
            let file = of_target.with_extension("rs");
            paths.extend(file.exists().then_some(file));
            if of_target.is_dir() {
                rust_files(&of_target, &mut paths)?;
            }
        }
        paths.iter().map(|path| Ok(fs::read_to_string(path)?)).collect()
    }
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            rust_files(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The anchor of the section that begins with this line, if one does, as GitHub makes it.
fn heading(line: &str) -> Option<String> {
    let title = line.trim_start_matches('#');
    let title = title.strip_prefix(' ').filter(|_| line.starts_with('#'))?;
    let kept = |letter: char| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        letter => letter.is_alphanumeric().then(|| letter.to_ascii_lowercase()),
    };
    Some(title.trim().chars().filter_map(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_named_as_in_a_link() {
        assert_eq!(
            heading("### A lease that has lapsed").as_deref(),
            Some("a-lease-that-has-lapsed")
        );
        assert_eq!(
            heading("## The application's `probes`").as_deref(),
            Some("the-applications-probes")
        );
        assert_eq!(heading("#hashtag"), None);
        assert_eq!(heading("text"), None);
    }

    #[test]
    fn code_that_is_not_there_once_has_no_place() {
        let rule = |code: &str| Rule {
            rule: "It holds.".to_owned(),
            promised: String::new(),
            file: PathBuf::from("x.rs"),
            code: code.to_owned(),
            without: "true".to_owned(),
            test: Test::try_from("a/lib/b".to_owned()).unwrap(),
            with: BTreeMap::new(),
        };
        assert_eq!(rule("if ⟦is_held⟧ {").span("a if is_held { b").unwrap(), 5..12);
        for content in ["", "if is_held { if is_held {"] {
            assert!(rule("if ⟦is_held⟧ {").span(content).is_err(), "{content}");
        }
        assert!(rule("if is_held {").span("if is_held {").is_err());
    }

    #[test]
    fn a_test_has_three_words() {
        assert!(Test::try_from("a/b".to_owned()).is_err());
        assert!(Test::try_from("a/b/c/d".to_owned()).is_err());
    }
}
