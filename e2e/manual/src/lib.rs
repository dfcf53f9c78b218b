//! Man pages and completions, made from the options of the programs.

#![warn(unreachable_pub)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use kubectl_lockkeeper::Plugin;
use lockkeeper_operator::args::OperatorArgs;

/// The program that people call in a shell, which completes its words.
const COMPLETED: &str = "lockkeeper";

/// The shells, and the file below a `share` folder in which each looks for the completions of that program: that of
/// bash-completion, one of zsh's `fpath`, and one of fish's `fish_complete_path`.
const COMPLETIONS: [(Shell, &str); 3] = [
    (Shell::Bash, "bash-completion/completions/lockkeeper"),
    (Shell::Zsh, "zsh/site-functions/_lockkeeper"),
    (Shell::Fish, "fish/vendor_completions.d/lockkeeper.fish"),
];

/// The command lines of all programs.
pub fn programs() -> Vec<Command> {
    let programs = [
        lockkeeper_sidecar::args::command_line(),
        OperatorArgs::command(),
        Plugin::command(),
    ];
    programs
        .into_iter()
        .map(|mut program| {
            // Only then its subcommands know by which words they are called.
            program = program.disable_help_subcommand(true);
            program.build();
            program
        })
        .collect()
}

/// All files, by their paths below a `share` folder.
///
/// # Errors
/// When a page cannot be rendered.
pub fn files() -> anyhow::Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for mut program in programs() {
        pages(&program, &mut files)?;
        if program.get_name() == COMPLETED {
            for (shell, file) in COMPLETIONS {
                let mut text = Vec::new();
                clap_complete::generate(shell, &mut program, COMPLETED, &mut text);
                files.insert(file.into(), text);
            }
        }
    }
    Ok(files)
}

/// The page of a command and those of its subcommands: `lockkeeper.1`, `lockkeeper-run.1`.
fn pages(command: &Command, files: &mut BTreeMap<PathBuf, Vec<u8>>) -> anyhow::Result<()> {
    let page = Man::new(command.clone());
    let name = page.get_filename();
    let mut text = Vec::new();
    page.render(&mut text)
        .with_context(|| format!("cannot render {name}"))?;
    files.insert(Path::new("man/man1").join(name), text);
    command
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .try_for_each(|subcommand| pages(subcommand, files))
}

/// Writes all files below a folder, and returns how many.
///
/// # Errors
/// When a folder or a file cannot be written.
pub fn write(folder: &Path) -> anyhow::Result<usize> {
    let files = files()?;
    for (path, text) in &files {
        let path = folder.join(path);
        let parent = path.parent().unwrap_or(folder);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::write(&path, text))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(files.len())
}
