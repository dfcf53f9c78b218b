//! The options of `lockkeeper ui`.

use clap::Args;

use super::ensemble::EnsembleArgs;
use super::examples;
use super::pattern::PatternArgs;

/// Arguments of `lockkeeper ui`.
#[derive(Debug, Args)]
#[command(after_long_help = examples::UI)]
pub struct UiArgs {
    #[command(flatten)]
    pub ensemble: EnsembleArgs,

    #[command(flatten)]
    pub locks: PatternArgs,

    /// The port on 127.0.0.1. Default: one that is free
    #[arg(
        long,
        env = "LOCKKEEPER_PORT",
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    pub port: u16,
}
