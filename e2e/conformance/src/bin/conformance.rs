//! Traces the lock's real task on three real servers under faults, and asks TLC whether the specification accepts
//! each trace and rejects spoilt ones.

use std::fs;
use std::process::ExitCode;

use clap::Parser;
use lockkeeper_campaign::{SEED_VARIABLE, seed_from_environment};
use lockkeeper_conformance::report::{Report, judge};
use lockkeeper_conformance::rounds::Rounds;
use lockkeeper_conformance::tlc::Tlc;
use lockkeeper_testbed::binaries;

/// Records traces of the lock's real task on real servers under faults, and checks each against the specification.
///
/// Exits with 1 when a trace was rejected, or a spoilt one was accepted.
#[derive(Parser)]
#[command(name = "lockkeeper-conformance")]
struct Args {
    /// How many traces; each is of one lock.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    traces: u32,
    /// How many locks at a time, on one ensemble.
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=200))]
    at_once: u32,
    /// Makes the same choices again (also LOCKKEEPER_SEED); the timing of the machine still differs.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let tlc = Tlc::find()?;
    let seed = args.seed.unwrap_or_else(seed_from_environment);
    println!("{SEED_VARIABLE}={seed}");
    let mut rounds = Rounds::start(seed)?;
    let mut report = Report::default();
    let mut missing = args.traces as usize;
    let folder = binaries::target_directory()?.join("conformance");
    fs::create_dir_all(&folder)?;
    while missing > 0 {
        let traces = rounds.round(missing.min(args.at_once as usize))?;
        missing -= traces.len();
        let found = judge(&tlc, traces)?;
        for (number, bad) in (report.bad.len()..).zip(&found.bad) {
            let file = folder.join(format!("{seed}-{number}.txt"));
            fs::write(&file, bad)?;
            println!("a wrong verdict: see {}", file.display());
        }
        report.add(&found);
        println!("{report}");
    }
    Ok(if report.bad.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
