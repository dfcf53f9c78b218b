//! The pages tell of every option, and each program that reads the files takes them.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Command as CommandLine;
use lockkeeper_manual::{files, programs, write};

/// The page of a command.
fn page(name: &str) -> String {
    let path = Path::new("man/man1").join(format!("{name}.1"));
    let files = files().unwrap();
    let text = files.get(&path).unwrap_or_else(|| panic!("there is no {path:?}"));
    // A hyphen that a reader may copy is written with a backslash.
    String::from_utf8(text.clone()).unwrap().replace("\\-", "-")
}

fn assert_told(command: &CommandLine) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    let page = page(name);
    for option in command.get_arguments().filter(|option| !option.is_hide_set()) {
        if let Some(long) = option.get_long() {
            assert!(page.contains(&format!("--{long}")), "{name}: --{long}");
        }
        if let Some(variable) = option.get_env().filter(|_| !option.is_hide_env_set()) {
            let variable = variable.to_str().unwrap();
            assert!(page.contains(variable), "{name}: {variable}");
        }
    }
    for subcommand in command.get_subcommands().filter(|command| !command.is_hide_set()) {
        let name = format!("{name}-{}", subcommand.get_name());
        assert!(
            page.contains(&format!("{name}(1)")),
            "the page does not lead to {name}"
        );
        assert_told(subcommand);
    }
}

#[test]
fn every_command_has_a_page_with_all_its_options_and_their_variables() {
    for program in programs() {
        assert_told(&program);
    }
}

#[test]
fn the_page_of_a_subcommand_shows_what_to_type() {
    for (name, typed) in [
        ("lockkeeper-run", "lockkeeper run"),
        ("kubectl-lockkeeper-why", "kubectl lockkeeper why"),
    ] {
        let page = page(name);
        let synopsis = page
            .split(".SH")
            .find(|section| section.trim_start().starts_with("SYNOPSIS"));
        assert!(synopsis.unwrap().contains(typed), "{page}");
    }
}

/// The files in a folder, and their paths below it.
fn written() -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let count = write(folder.path()).unwrap();
    let paths: Vec<PathBuf> = files().unwrap().into_keys().collect();
    assert_eq!(count, paths.len());
    let paths = paths.into_iter().map(|path| folder.path().join(path)).collect();
    (folder, paths)
}

/// What a program says of a file; `None` where it is not installed.
fn said(program: &str, arguments: &[&str]) -> Option<(bool, String)> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) => {
            let said = [output.stdout, output.stderr].concat();
            Some((
                output.status.success(),
                String::from_utf8_lossy(&said).into_owned(),
            ))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            lockkeeper_skip::skip(format_args!("{program} is not installed"));
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

/// Asserts that a program finds no fault in the files below a folder.
fn assert_taken(folder: &str, program: &str, arguments: &[&str]) {
    let (_folder, paths) = written();
    let paths: Vec<_> = paths
        .iter()
        .filter(|path| path.to_str().unwrap().contains(folder))
        .collect();
    assert!(!paths.is_empty());
    for path in paths {
        let arguments = [arguments, &[path.to_str().unwrap()]].concat();
        let Some((is_taken, text)) = said(program, &arguments) else {
            return;
        };
        assert!(is_taken && text.is_empty(), "{path:?}: {text}");
    }
}

#[test]
fn groff_renders_every_page_without_a_warning() {
    // A line that cannot be adjusted, since it ends with a long word, is no fault.
    assert_taken(
        "/man1/",
        "groff",
        &["-k", "-man", "-Tutf8", "-ww", "-Wbreak", "-z"],
    );
}

#[test]
fn zsh_reads_its_completions() {
    assert_taken("/zsh/", "zsh", &["-n"]);
}

#[test]
fn fish_reads_its_completions() {
    assert_taken("/fish/", "fish", &["--no-execute"]);
}

#[test]
fn bash_completes_the_commands_and_the_options_of_a_command() {
    let (folder, _paths) = written();
    let file = folder.path().join("bash-completion/completions/lockkeeper");
    // As bash calls it: the command, the word that is completed, and the one before.
    let completed = |words: &[&str], last: &str| {
        let script = format!(
            "source {}; COMP_WORDS=({} {last:?}); COMP_CWORD={}; \
             _lockkeeper lockkeeper {last:?} {:?}; echo \"${{COMPREPLY[@]}}\"",
            file.display(),
            words.join(" "),
            words.len(),
            words[words.len() - 1],
        );
        let (is_done, text) = said("bash", &["-c", &script]).expect("a bash");
        assert!(is_done, "{text}");
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(completed(&["lockkeeper"], "r"), ["run", "release"]);
    assert!(completed(&["lockkeeper", "run"], "--session").contains(&"--session-timeout".to_owned()));
    assert_eq!(completed(&["lockkeeper", "run", "--containment"], "p"), ["pidns"]);
}
