//! How a command shows what it has found.

use clap::{Args, ValueEnum};

#[derive(Debug, Args)]
pub struct OutputArgs {
    /// Output format
    #[arg(
        long,
        short,
        env = "LOCKKEEPER_OUTPUT",
        value_name = "FORMAT",
        default_value = "text",
        ignore_case = true
    )]
    pub output: OutputFormat,
}

/// For whom a command shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}
