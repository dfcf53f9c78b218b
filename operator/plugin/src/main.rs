//! `kubectl lockkeeper`: parses, asks, prints.

use std::io::Write;
use std::process::{ExitCode, Termination};

use clap::Parser;
use kubectl_lockkeeper::{Plugin, complete, completes};
use lockkeeper_daemon::exit::{Exit, Failure};

fn main() -> ExitCode {
    let program = std::env::args_os().next();
    let answered = if completes(program.as_deref()) {
        let words = std::env::args_os().skip(1);
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        answer(async move { print(&complete(&words).await) })
    } else {
        answer(Plugin::parse().run(print))
    };
    match answered {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn answer(answer: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| Failure::software("a TLS provider is already installed"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::software(format!("cannot start the runtime: {error}")))?;
    let answered = runtime.block_on(answer);
    // A look-up of a name that nobody waits for any more does not hold up the end.
    runtime.shutdown_background();
    answered
}

/// `println!` would panic when the reader is gone.
fn print(text: &str) -> Result<(), Failure> {
    std::io::stdout()
        .lock()
        .write_all(text.as_bytes())
        .map_err(|error| Failure::new(Exit::CannotCreate, format!("cannot write to stdout: {error}")))
}
