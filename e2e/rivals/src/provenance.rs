//! What was run, and when: each round names it, so that rounds of different programs are not taken for the same.

use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

/// A run of the harness.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The revision of this repository, with our lock and all drivers; with `-dirty` if anything but documents differs
    /// from it.
    pub revision: String,
    /// The day in UTC, as `2026-11-29`.
    pub day: String,
}

impl Run {
    /// One that begins now.
    ///
    /// # Errors
    /// When the harness runs outside of its repository: nobody could tell what was measured.
    pub fn now() -> anyhow::Result<Self> {
        let head = git(&["rev-parse", "--short=12", "HEAD"])?;
        // The results themselves are among the documents.
        let changed = git(&["status", "--porcelain", "--", ":/", ":(exclude,top)docs"])?;
        let mark = if changed.is_empty() { "" } else { "-dirty" };
        #[expect(
            clippy::disallowed_methods,
            reason = "people read it; no decision depends on it"
        )]
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let (day, _) = now.split_once('T').context("a time without a day")?;
        Ok(Self {
            revision: format!("{head}{mark}"),
            day: day.to_owned(),
        })
    }
}

fn git(arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("git");
    command.args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments);
    let output = command.output().context("cannot run git")?;
    ensure!(
        output.status.success(),
        "git does not tell which revision is measured: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_names_its_revision_and_its_day() {
        let Run { revision, day } = Run::now().unwrap();
        let hash = revision.trim_end_matches("-dirty");
        assert!(
            hash.len() >= 12 && hash.chars().all(|digit| digit.is_ascii_hexdigit()),
            "{revision}"
        );
        assert!(day.starts_with("20") && day.len() == 10, "{day}");
    }
}
