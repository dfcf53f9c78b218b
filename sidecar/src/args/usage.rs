//! From the words of the command line to a [`Command`], and from clap's errors to one sentence.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use lockkeeper_daemon::exit::Failure;

use super::command::{Cli, Command};

/// What the command line asks for.
#[derive(Debug)]
pub enum Parsed {
    Do(Command),
    /// To print this text: `--help` or `--version`.
    Print(String),
}

/// All commands and options, for what is made of them: man pages and completions.
pub fn command_line() -> clap::Command {
    Cli::command()
}

/// Reads the words of the command line, the first of which is the program, and the variables.
///
/// # Errors
/// What is wrong, with a hint to `--help`.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Parsed, Failure> {
    let words: Vec<OsString> = words.into_iter().collect();
    match Cli::try_parse_from(&words) {
        Ok(cli) => Ok(Parsed::Do(cli.command)),
        Err(error) => match error.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                Ok(Parsed::Print(error.render().to_string()))
            }
            _ => Err(Failure::usage(sentence(&error, &words))),
        },
    }
}

/// clap says it in several paragraphs, of which the first is the error.
fn sentence(error: &clap::Error, words: &[OsString]) -> String {
    let subcommand = subcommand(words);
    let help = match &subcommand {
        Some(subcommand) => format!("lockkeeper {} --help", subcommand.get_name()),
        None => "lockkeeper --help".to_owned(),
    };
    let problem = match error.kind() {
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            "what to do is missing: name a command, such as run or status".to_owned()
        }
        _ => {
            let rendered = error.render().to_string();
            let paragraph = rendered.split("\n\n").next().unwrap_or_default();
            let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
            line.strip_prefix("error: ").unwrap_or(&line).to_owned()
        }
    };
    let separator = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word)))
            if !word.starts_with('-') && subcommand.as_ref().is_some_and(takes_command) =>
        {
            ": the command to run goes after --"
        }
        _ => "",
    };
    let origin = match variable(error, words, subcommand.as_ref()) {
        Some(variable) => format!(" (from the environment variable {variable})"),
        None => String::new(),
    };
    format!("{problem}{separator}{origin}; see `{help}`")
}

fn subcommand(words: &[OsString]) -> Option<clap::Command> {
    let name = words.get(1)?.to_str()?;
    Cli::command().find_subcommand(name).cloned()
}

fn takes_command(subcommand: &clap::Command) -> bool {
    subcommand.get_arguments().any(clap::Arg::is_last_set)
}

/// The variable that the refused value came from: clap names the flag alone, even when the user
/// never wrote it.
fn variable(error: &clap::Error, words: &[OsString], subcommand: Option<&clap::Command>) -> Option<String> {
    if !matches!(
        error.kind(),
        ErrorKind::ValueValidation | ErrorKind::InvalidValue | ErrorKind::InvalidUtf8
    ) {
        return None;
    }
    let Some(ContextValue::String(shown)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let flag = shown.split_whitespace().next()?;
    let argument = subcommand?.get_arguments().find(|argument| {
        argument
            .get_long()
            .is_some_and(|long| flag.strip_prefix("--") == Some(long))
    })?;
    let short = argument.get_short().map(|short| format!("-{short}"));
    let written = words
        .iter()
        .skip(2)
        .map_while(|word| (word != "--").then(|| word.to_string_lossy()))
        .any(|word| {
            word.strip_prefix(flag)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
                || short.as_ref().is_some_and(|short| word.starts_with(short))
        });
    let variable = argument.get_env()?.to_str()?;
    (!written).then(|| variable.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// An explicit word is said each time, and is not inherited.
    const WITHOUT_VARIABLE: [&str; 4] = ["help", "version", "abandon_survivors", "watch"];

    /// Variables of the guarded container choose no keeper.
    const IN_THE_CONTAINER: [(&str, &str); 2] = [("guard", "guard_socket"), ("probe", "guard_socket")];

    #[test]
    fn every_option_has_a_variable_of_its_own_in_each_command() {
        for command in Cli::command().get_subcommands() {
            let mut variables = std::collections::HashSet::new();
            let options = command.get_arguments().filter(|argument| !argument.is_last_set());
            for argument in options.filter(|argument| !WITHOUT_VARIABLE.contains(&argument.get_id().as_str()))
            {
                if IN_THE_CONTAINER.contains(&(command.get_name(), argument.get_id().as_str())) {
                    assert_eq!(argument.get_env(), None);
                    continue;
                }
                let place = format!("{} {}", command.get_name(), argument.get_id());
                let variable = argument
                    .get_env()
                    .unwrap_or_else(|| panic!("{place} has no variable"));
                let variable = variable.to_str().unwrap();
                assert!(variable.starts_with("LOCKKEEPER_"), "{place}: {variable}");
                assert!(
                    variables.insert(variable.to_owned()),
                    "{place}: {variable} is taken twice"
                );
                assert!(argument.get_help().is_some(), "{place} has no help");
            }
        }
    }

    /// Commands that people call; the others are called by pods.
    const FOR_PEOPLE: [&str; 9] = [
        "run", "status", "wait", "list", "inspect", "watch", "history", "handoff", "ui",
    ];

    #[test]
    fn the_long_help_of_what_people_call_has_two_examples_that_are_accepted_and_the_short_one_has_none() {
        for name in FOR_PEOPLE {
            let mut command = Cli::command().find_subcommand(name).cloned().unwrap();
            assert!(!command.render_help().to_string().contains("Examples:"), "{name}");
            let long = command.render_long_help().to_string();
            let (_, examples) = long.split_once("Examples:").unwrap();
            let lines: Vec<_> = examples
                .lines()
                .filter_map(|line| line.strip_prefix("  lockkeeper "))
                .collect();
            assert_eq!(lines.len(), 2, "{name}");
            for line in lines {
                let words = line.split(' ').map(|word| word.trim_matches('"').into());
                let parsed = parse(std::iter::once("lockkeeper".into()).chain(words));
                assert!(parsed.is_ok(), "{line}: {parsed:?}");
            }
        }
    }

    #[test]
    fn the_many_options_of_run_are_in_groups() {
        let mut run = Cli::command().find_subcommand("run").cloned().unwrap();
        let help = run.render_help().to_string();
        let groups: Vec<_> = help
            .lines()
            .filter(|line| !line.starts_with(' ') && line.ends_with(':'))
            .collect();
        let expected = [
            "Options:",
            "Ensemble:",
            "Lock:",
            "Times:",
            "Application:",
            "Waiting and exit codes:",
            "Socket, probes and metrics:",
            "Log:",
        ];
        assert_eq!(groups, expected, "{help}");
    }

    #[test]
    fn a_command_inside_a_command_does_not_take_the_outer_ones_socket() {
        // `run` sets it for its command (docs/run.md, "Environment of the command").
        let run = Cli::command().find_subcommand("run").cloned().unwrap();
        let variables: Vec<_> = run
            .get_arguments()
            .filter_map(|argument| argument.get_env())
            .collect();
        assert!(!variables.contains(&std::ffi::OsStr::new("LOCKKEEPER_SOCKET")));
    }
}
