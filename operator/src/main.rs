//! `lockkeeper-operator`: parses, prepares the process, and hands over.

use std::process::{ExitCode, Termination};

use clap::Parser;
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::log;
use lockkeeper_operator::args::OperatorArgs;
use lockkeeper_operator::run;
use lockkeeper_operator::uninstall::UninstallArgs;
use lockkeeper_operator::zookeeper::{sandbox, sandboxed};

fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == sandbox::WORD)
    {
        return sandboxed::main();
    }
    // Ends by itself with --help and with what clap has to say.
    let done = if std::env::args_os().nth(1).is_some_and(|word| word == UNINSTALL) {
        uninstall(UninstallArgs::parse_from(std::env::args_os().skip(1)))
    } else {
        operate(OperatorArgs::parse())
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

/// First word of the command line of the chart's hooks. All else are options of the operator.
const UNINSTALL: &str = "uninstall";

fn uninstall(args: UninstallArgs) -> Result<(), Failure> {
    provide_tls()?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::software(format!("cannot start the runtime: {error}")))?
        .block_on(args.run())
}

/// kube and zookeeper-client both use rustls; one process needs one provider.
fn provide_tls() -> Result<(), Failure> {
    rustls::crypto::aws_lc_rs::default_provider()
        .install_default()
        .map_err(|_| Failure::software("a TLS provider is already installed"))
}

fn operate(args: OperatorArgs) -> Result<(), Failure> {
    provide_tls()?;
    let _log = log::init(args.log.log_format, args.log.log.clone())?;
    let settings = args.settings()?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Failure::software(format!("cannot start the runtime: {error}")))?
        .block_on(run::run(settings))
}
