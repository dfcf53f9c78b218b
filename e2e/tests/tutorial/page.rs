//! The commands of the page, and the image that they name.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};
use lockkeeper_documents::{blocks, read};
use tempfile::TempDir;

/// A command of the page, and the output that the page shows for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub command: String,
    pub output: Vec<String>,
}

/// All commands of `docs/tutorial.md` that have an output: those of its blocks `console`.
pub fn steps() -> Vec<Step> {
    let page = read(Path::new("docs/tutorial.md"));
    let steps: Vec<_> = blocks(&page)
        .into_iter()
        .filter(|block| block.language == "console")
        .flat_map(|block| parse(&block.text))
        .collect();
    for needed in [
        "helm install",
        "check",
        "rollout restart",
        "docker kill",
        "takenFrom",
        "helm uninstall",
    ] {
        let is_there = steps.iter().any(|step| step.command.contains(needed));
        assert!(is_there, "no command with {needed}");
    }
    steps
}

fn parse(block: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut goes_on = false;
    for line in block.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step {
                command: command.to_owned(),
                output: Vec::new(),
            }),
            (None, Some(step)) if goes_on => {
                step.command.push('\n');
                step.command.push_str(line);
            }
            (None, Some(step)) => step.output.push(line.to_owned()),
            (None, None) => panic!("a block begins with no command: {line}"),
        }
        goes_on = (goes_on || line.starts_with("$ ")) && line.ends_with('\\');
    }
    steps
}

/// What an image of busybox is made of: this machine's, which is static.
pub fn busybox() -> anyhow::Result<TempDir> {
    let found = Command::new("sh").args(["-c", "command -v busybox"]).output()?;
    let busybox = String::from_utf8(found.stdout)?;
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("root/bin");
    fs::create_dir_all(&bin)?;
    fs::copy(busybox.trim(), bin.join("busybox")).context("there is no busybox")?;
    let applets = Command::new(bin.join("busybox")).arg("--list").output()?;
    ensure!(applets.status.success(), "busybox lists no applets");
    for applet in String::from_utf8(applets.stdout)?
        .lines()
        .filter(|one| *one != "busybox")
    {
        symlink("busybox", bin.join(applet))?;
    }
    fs::write(
        folder.path().join("Dockerfile"),
        "FROM scratch\nCOPY root /\nCMD [\"sh\"]\n",
    )?;
    Ok(folder)
}

#[test]
fn a_command_goes_on_after_a_backslash_and_what_follows_is_its_output() {
    let step = |command: &str, output: &[&str]| Step {
        command: command.to_owned(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(
        parse("$ A=1\n$ helm install \\\n    --wait\ndone\n\nat last\n"),
        [
            step("A=1", &[]),
            step("helm install \\\n    --wait", &["done", "", "at last"]),
        ]
    );
}

#[test]
fn the_page_shows_the_manifest_that_it_applies() {
    let page = read(Path::new("docs/tutorial.md"));
    let shown = blocks(&page).into_iter().find(|block| block.language == "yaml");
    assert_eq!(shown.unwrap().text, read(Path::new("docs/examples/report.yaml")));
}
