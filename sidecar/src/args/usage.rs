//! From the words of the command line to a [`Command`], and from clap's errors to one sentence.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use super::{Cli, Command};
use crate::exit::Failure;

/// What the command line asks for.
#[derive(Debug)]
pub enum Parsed {
    /// To do something.
    Do(Command),
    /// To print this text: `--help` or `--version`.
    Print(String),
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
        ErrorKind::MissingSubcommand => {
            "what to do is missing: name a command, such as run or status".to_owned()
        }
        _ => {
            let rendered = error.render().to_string();
            let paragraph = rendered.split("\n\n").next().unwrap_or_default();
            let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
            line.strip_prefix("error: ").unwrap_or(&line).to_owned()
        }
    };
    let origin = match variable(error, words, subcommand.as_ref()) {
        Some(variable) => format!(" (from the environment variable {variable})"),
        None => String::new(),
    };
    format!("{problem}{origin}; see `{help}`")
}

fn subcommand(words: &[OsString]) -> Option<clap::Command> {
    let name = words.get(1)?.to_str()?;
    Cli::command().find_subcommand(name).cloned()
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
