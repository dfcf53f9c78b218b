//! The log on stderr: lines of text for people, or one JSON object per line.
//!
//! A thread writes the lines. So a reader that is frozen, or a disk that hangs, holds nothing else up.

use std::io;
use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde_json::json;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

use crate::exit::Failure;
use crate::lines::{self, Lines};

/// As lines name this module.
const TARGET: &str = module_path!();

/// What is logged, and how. Doc comments are the help that users read.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Log")]
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

/// The log of this process. Its end waits until what is left is written, for a second at most.
#[must_use = "the log ends with it"]
pub struct Log(());

/// Sends the log of this process to stderr. Call it once, at the start, in a process that does not fork.
///
/// # Errors
/// When a log was started before.
pub fn init(format: LogFormat, filter: LogFilter) -> Result<Log, Failure> {
    // A process that may have no other thread writes by itself.
    let lines = Lines::to(io::stderr(), move |left_out| gap(left_out, format)).ok();
    let writer = match lines.clone() {
        Some(lines) => BoxMakeWriter::new(move || lines.clone()),
        None => BoxMakeWriter::new(io::stderr),
    };
    let layer = fmt::layer().with_writer(writer);
    let layer = match format {
        LogFormat::Text => layer.with_ansi(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    tracing_subscriber::registry()
        .with(layer.with_filter(filter.0))
        .try_init()
        .map_err(|_| Failure::software("the log of this process was started twice"))?;
    if let Some(lines) = lines {
        lines.are_of_stderr();
    }
    Ok(Log(()))
}

/// Waits until all lines of the log are written, for a second at most.
pub fn flush() {
    lines::flush();
}

/// The line in place of so many that are missing.
fn gap(left_out: usize, format: LogFormat) -> String {
    let sentence = format!("{left_out} lines of the log were left out, since its reader did not keep up");
    let mut now = String::new();
    let _ = SystemTime.format_time(&mut Writer::new(&mut now));
    match format {
        LogFormat::Text => format!("{now}  WARN {TARGET}: {sentence}\n"),
        LogFormat::Json => {
            let line = json!({ "timestamp": now, "level": "WARN", "message": sentence, "target": TARGET });
            format!("{line}\n")
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        flush();
    }
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
    fn what_is_missing_is_told_as_a_line_of_the_log() {
        let sentence = "7 lines of the log were left out, since its reader did not keep up";
        let text = gap(7, LogFormat::Text);
        assert!(
            text.ends_with(&format!("Z  WARN lockkeeper_daemon::log: {sentence}\n")),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&gap(7, LogFormat::Json)).unwrap();
        assert_eq!(
            (&json["level"], &json["message"]),
            (&json!("WARN"), &json!(sentence))
        );
    }

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
