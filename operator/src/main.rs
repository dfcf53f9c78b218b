//! `lockkeeper-operator`: parses, prepares the process, and hands over.

use std::process::{ExitCode, Termination};

use clap::Parser;
use lockkeeper_operator::args::OperatorArgs;
use lockkeeper_operator::run;
use lockkeeper_sidecar::exit::Failure;
use lockkeeper_sidecar::log;

fn main() -> ExitCode {
    // Ends by itself with --help and with what clap has to say.
    let args = OperatorArgs::parse();
    match operate(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn operate(args: OperatorArgs) -> Result<(), Failure> {
    // kube and zookeeper-client both use rustls; one process needs one provider.
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| Failure::software("a TLS provider is already installed"))?;
    log::init(args.log.log_format, args.log.log.clone())?;
    let settings = args.settings()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::software(format!("cannot start the runtime: {error}")))?
        .block_on(run::run(settings))
}
