//! The log on stderr: lines of text for people, or one JSON object per line.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;

/// What is logged, and how. Doc comments are the help that users read.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// How a line of the log is written
    #[arg(
        long,
        env = "LOCKKEEPER_LOG_FORMAT",
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub log_format: LogFormat,

    /// What is logged: LEVEL or TARGET=LEVEL, separated by commas
    // The client's warnings are about single servers; the lock itself logs what matters of them.
    #[arg(
        long,
        env = "LOCKKEEPER_LOG",
        value_name = "FILTER",
        default_value = "info,zookeeper_client=error"
    )]
    pub log: LogFilter,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// What is logged: levels, for everything or per target.
#[derive(Clone, Debug, PartialEq)]
pub struct LogFilter(Targets);

/// Sends the log of this process to stderr. Call it once, at the start.
///
/// # Errors
/// When a log was started before.
pub fn init(format: LogFormat, filter: LogFilter) -> Result<(), Failure> {
    let lines = fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Text => lines.with_ansi(false).boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(lines.with_filter(filter.0))
        .try_init()
        .map_err(|_| Failure::software("the log of this process was started twice"))
}

// === impl LogFilter ===

impl FromStr for LogFilter {
    type Err = String;

    /// `LEVEL` or `TARGET=LEVEL`, separated by commas. (`Targets` would accept a bare `TARGET` too; here it is most
    /// likely a misspelled level.)
    fn from_str(text: &str) -> Result<Self, String> {
        for directive in text.split(',') {
            let level = directive.split_once('=').map_or(directive, |(_, level)| level);
            if level.is_empty() || level.parse::<LevelFilter>().is_err() {
                return Err(format!(
                    "`{level}` is not a level; write off, error, warn, info, debug or trace, or \
                     TARGET=LEVEL, separated by commas"
                ));
            }
        }
        text.parse().map(Self).map_err(|error| format!("{error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_targets_are_accepted_and_spelling_mistakes_are_not() {
        for filter in [
            "info",
            "OFF",
            "warn,lockkeeper_lock=debug",
            "lockkeeper_sidecar=trace",
        ] {
            assert!(filter.parse::<LogFilter>().is_ok(), "{filter}");
        }
        for filter in ["", "inffo", "info,", "lockkeeper_lock=", "lockkeeper_lock=loud"] {
            let message = filter.parse::<LogFilter>().unwrap_err();
            assert!(message.contains("is not a level"), "{filter}: {message}");
        }
    }
}
