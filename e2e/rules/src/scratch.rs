//! A copy of the repository, in which each rule has a switch.
//!
//! A build for each rule would take hours. So one program contains the code with a rule and the code without
//! it, and an environment variable says which rule is removed. Without the variable all rules are in force.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::list::Rule;

/// Variable with the number of the removed rule.
pub(crate) const OUT: &str = "LOCKKEEPER_RULE_OUT";

/// The copy: one at a time, since there is one folder for it.
#[derive(Debug)]
pub struct Scratch {
    root: PathBuf,
    tree: PathBuf,
    target: PathBuf,
    shared: PathBuf,
    /// Locked as long as this lives.
    _lock: File,
}

/// A part of a file that a switch removes.
type Part<'a> = (Range<usize>, usize, &'a Rule);

impl Scratch {
    /// The folder `target/rules` of the repository at `root`.
    ///
    /// # Errors
    /// When it is in use, or cannot be made.
    pub fn open(root: &Path) -> Result<Self> {
        let folder = root.join("target/rules");
        let (tree, target) = (folder.join("tree"), folder.join("build"));
        fs::create_dir_all(&tree)?;
        fs::create_dir_all(&target)?;
        let lock = File::create(folder.join("lock"))?;
        if lock.try_lock().is_err() {
            bail!("{} is in use: another `make rules` runs", folder.display());
        }
        Ok(Self {
            root: root.to_owned(),
            tree,
            target,
            shared: root.join("target"),
            _lock: lock,
        })
    }

    /// The folder of the copy.
    pub(crate) fn tree(&self) -> &Path {
        &self.tree
    }

    /// The target directory of the copy.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// The target directory of the repository itself.
    pub(crate) fn shared(&self) -> &Path {
        &self.shared
    }

    /// Copies the files that git knows, or would add, with a switch for each of these numbered rules. Files
    /// that are the same in the copy stay as they are, so that cargo builds little again.
    ///
    /// # Errors
    /// When a file cannot be copied, or a rule does not fit it.
    pub(crate) fn copy(&self, rules: &[(usize, &Rule)]) -> Result<()> {
        let mut switched = switched(&self.root, rules)?;
        let files = files(&self.root)?;
        for file in &files {
            let original = self.root.join(file);
            let content = match switched.remove(file) {
                Some(content) => content.into_bytes(),
                None => fs::read(&original).with_context(|| format!("cannot read {}", file.display()))?,
            };
            let copy = self.tree.join(file);
            if fs::read(&copy).is_ok_and(|copied| copied == content) {
                continue;
            }
            if let Some(parent) = copy.parent() {
                fs::create_dir_all(parent)?;
            }
            // Not with the time of the original: cargo builds files that are newer than its last build.
            fs::write(&copy, content)?;
            fs::set_permissions(&copy, fs::metadata(original)?.permissions())?;
        }
        ensure!(switched.is_empty(), "git does not know {:?}", switched.keys());
        remove_others(&self.tree, &self.tree, &files.into_iter().collect())
    }
}

/// Puts rules into as few groups as possible, so that no two of a group remove the same code.
///
/// # Errors
/// When a rule does not fit its file.
pub(crate) fn groups<'a>(root: &Path, rules: &[(usize, &'a Rule)]) -> Result<Vec<Vec<(usize, &'a Rule)>>> {
    let mut groups: Vec<Vec<(usize, &Rule)>> = Vec::new();
    let mut spans = Vec::new();
    for (number, rule) in rules {
        let content = fs::read_to_string(root.join(&rule.file))
            .with_context(|| format!("cannot read {}", rule.file.display()))?;
        let span = rule.span(&content).with_context(|| rule.rule.clone())?;
        let is_apart = |(other, of): &(Range<usize>, &Path)| {
            *of != rule.file || other.end < span.start || span.end < other.start
        };
        let at = spans
            .iter()
            .position(|of_group: &Vec<_>| of_group.iter().all(is_apart))
            .unwrap_or(groups.len());
        if at == groups.len() {
            groups.push(Vec::new());
            spans.push(Vec::new());
        }
        groups[at].push((*number, rule));
        spans[at].push((span, rule.file.as_path()));
    }
    Ok(groups)
}

/// The files of these rules, with switches.
fn switched(root: &Path, rules: &[(usize, &Rule)]) -> Result<BTreeMap<PathBuf, String>> {
    let mut contents = BTreeMap::new();
    let mut parts: BTreeMap<&Path, Vec<Part<'_>>> = BTreeMap::new();
    for (number, rule) in rules {
        let file = rule.file.as_path();
        let content = fs::read_to_string(root.join(file))?;
        parts
            .entry(file)
            .or_default()
            .push((rule.span(&content)?, *number, rule));
        contents.insert(file.to_owned(), content);
    }
    for (file, mut parts) in parts {
        let content = contents.get_mut(file).expect("each was put in above");
        // From the end, so that the others stay where they are.
        parts.sort_by_key(|(span, ..)| std::cmp::Reverse(span.start));
        for (span, number, rule) in parts {
            let switch = switch(&content[span.clone()], &rule.without, number);
            content.replace_range(span, &switch);
        }
    }
    Ok(contents)
}

/// Code with a switch between the original and the replacement without the rule.
fn switch(code: &str, without: &str, number: usize) -> String {
    let is_out = format!("::std::env::var_os(\"{OUT}\").is_some_and(|out| out == \"{number}\")");
    let switch = format!("if {is_out} {{ {without} }} else {{ {code} }}");
    let is_statement = code.trim_end().ends_with([';', '}']) && !code.trim_start().starts_with("vec!");
    if is_statement {
        switch
    } else {
        format!("({switch})")
    }
}

fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot start git, which lists the files to copy")?;
    ensure!(
        listed.status.success(),
        "git does not list the files to copy: {}",
        String::from_utf8_lossy(&listed.stderr)
    );
    let names = String::from_utf8(listed.stdout).context("a file has a name that is no text")?;
    let paths = names.split_terminator('\0').map(PathBuf::from);
    // Git still knows files that were deleted without a commit.
    Ok(paths.filter(|path| root.join(path).is_file()).collect())
}

/// Removes files that the original no longer has: cargo could build one as a test.
fn remove_others(tree: &Path, directory: &Path, kept: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(tree, &path, kept)?;
        } else if !kept.contains(path.strip_prefix(tree)?) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_stays_one_and_a_statement_too() {
        let of_expression = switch("a < b", "true", 7);
        assert!(of_expression.starts_with("(if ") && of_expression.ends_with("{ true } else { a < b })"));
        let of_statement = switch("return;", "", 7);
        assert!(of_statement.starts_with("if ") && of_statement.ends_with("{  } else { return; }"));
    }
}
