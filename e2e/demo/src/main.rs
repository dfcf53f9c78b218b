//! The demonstration: three workers under one lock, on real servers, under faults.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Parser;
use lockkeeper_demo::{Act, Ending, Options};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Shows what Lockkeeper does on three real ZooKeeper servers, in about a minute an act.
///
/// Exits with 1 when two applications ran at the same moment or tokens did not grow, with 2 when the
/// demonstration failed, and with 130 when it was interrupted. Leaves no process running.
#[derive(Parser)]
#[command(name = "lockkeeper-demo")]
struct Args {
    /// 1: workers of `lockkeeper run`. 2: pods on two nodes of a real Kubernetes (needs root).
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=2))]
    act: u8,
    /// Draw the timeline here as well, once for light and once for dark pages: into a-light.svg and a-dark.svg if FILE is
    /// a.svg. It is always among the results, as timeline-light.svg and timeline-dark.svg.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Directory for picture, records and logs. Default: demo in cargo's target directory.
    #[arg(long, value_name = "DIRECTORY")]
    results: Option<PathBuf>,
    /// Use loopback addresses instead of network namespaces: the acts that cut connections are left out.
    #[arg(long)]
    loopback: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        act: if args.act == 1 { Act::Run } else { Act::Kubernetes },
        svg: args.svg,
        results: args.results,
        loopback: args.loopback,
        interrupted: Arc::new(AtomicBool::new(false)),
    };
    match watch_signals(&options.interrupted).and_then(|()| lockkeeper_demo::run(&options)) {
        Ok(Ending::Clean) => ExitCode::SUCCESS,
        Ok(Ending::Violated) => ExitCode::from(1),
        // The code that a shell gives for a program that SIGINT ended.
        Ok(Ending::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("lockkeeper-demo: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The first signal ends the demonstration in order. A second one ends this process at once, and the kernel
/// then ends everything that it has started.
fn watch_signals(interrupted: &Arc<AtomicBool>) -> anyhow::Result<()> {
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(interrupted))?;
        signal_hook::flag::register(signal, Arc::clone(interrupted))?;
    }
    Ok(())
}
