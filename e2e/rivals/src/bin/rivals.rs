//! Runs the locks of the field under faults, or measures what they cost; see the library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use lockkeeper_rivals::faults::{FAULTS, Fault};
use lockkeeper_rivals::results::{Kept, lock};
use lockkeeper_rivals::systems::{OF_CROWDS, SYSTEMS, System};
use lockkeeper_rivals::{page, picture, round, turns};

/// Does the same faults to each lock of the field, and writes down what each of them did.
///
/// A run that was stopped goes on where it was.
#[derive(Parser)]
#[command(name = "lockkeeper-rivals")]
struct Args {
    /// Only these systems, by name or a part of it.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these faults.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Rounds of each fault.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The lease of all systems that have one, in whole seconds.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    lease: u64,
    /// The seed of the first round.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Systems at once: rounds wait most of the time.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    jobs: u32,
    /// Measure what the locks cost when nothing breaks, one after the other, instead of faults.
    #[arg(long)]
    costs: bool,
    /// How often, in turn with all the others.
    #[arg(long, default_value_t = 3, requires = "costs", value_parser = clap::value_parser!(u32).range(1..))]
    turns: u32,
    /// Measure how evenly 50 contenders get the lock, instead of faults.
    #[arg(long, conflicts_with = "costs")]
    fairness: bool,
    /// For how long.
    #[arg(long, default_value_t = 5, requires = "fairness", value_parser = clap::value_parser!(u64).range(1..=60))]
    minutes: u64,
    /// The file of the results.
    #[arg(long, default_value = "docs/rivals/results.json")]
    results: PathBuf,
    /// Only write the page and its pictures from the results, into this folder of documents.
    #[arg(long, value_name = "FOLDER")]
    page: Option<PathBuf>,
    /// Print the names of the systems and of the faults.
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.list {
        SYSTEMS
            .iter()
            .chain(OF_CROWDS)
            .for_each(|system| println!("{:<30}{}", system.name, system.title));
        FAULTS.iter().for_each(|fault| println!("{}", fault.name()));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(folder) = &args.page {
        return write_page(&args.results, folder);
    }
    let systems = systems(&args.only)?;
    let faults = faults(&args.faults)?;
    let kept = Mutex::new(Kept::open(&args.results, args.lease as f64)?);
    if args.costs {
        return turns::measure(&systems, args.turns, &kept);
    }
    let (next, missed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(system) = systems.get(next.fetch_add(1, Ordering::Relaxed)) {
            let ran = if args.fairness {
                turns::fairness(system, Duration::from_secs(60 * args.minutes), &kept)
            } else {
                run(system, &faults, &args, &kept)
            };
            if let Err(error) = ran {
                println!("{}: {error:#}", system.name);
                missed.fetch_add(1, Ordering::Relaxed);
                // That the file cannot be written shows at the next round of another system.
                let _ = lock(&kept).miss(system.name, format!("{error:#}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            scope.spawn(work);
        }
    });
    Ok(match missed.into_inner() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn write_page(results: &Path, folder: &Path) -> anyhow::Result<ExitCode> {
    let results = Kept::read(results)?;
    std::fs::create_dir_all(folder.join("rivals"))?;
    for (name, text) in [
        ("comparison.md", page::render(&results)),
        ("rivals/heat-map.svg", picture::heat_map(&results)),
        ("rivals/scatter.svg", picture::scatter(&results)),
    ] {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn systems(only: &[String]) -> anyhow::Result<Vec<&'static System>> {
    let is_chosen =
        |system: &&System| only.is_empty() || only.iter().any(|part| system.name.contains(part.as_str()));
    let chosen: Vec<_> = SYSTEMS.iter().chain(OF_CROWDS).filter(is_chosen).collect();
    if let Some(unknown) = only
        .iter()
        .find(|part| !chosen.iter().any(|system| system.name.contains(part.as_str())))
    {
        bail!("no system has \"{unknown}\" in its name: see --list");
    }
    Ok(chosen)
}

fn faults(only: &[String]) -> anyhow::Result<Vec<Fault>> {
    if let Some(unknown) = only
        .iter()
        .find(|name| FAULTS.iter().all(|fault| fault.name() != **name))
    {
        bail!("there is no fault \"{unknown}\": see --list");
    }
    let is_chosen = |fault: &&Fault| only.is_empty() || only.contains(&fault.name());
    Ok(FAULTS.iter().filter(is_chosen).copied().collect())
}

/// All that is left to do for a system, on servers that are started once.
fn run(system: &System, faults: &[Fault], args: &Args, kept: &Mutex<Kept>) -> anyhow::Result<()> {
    let rounds = args.rounds as usize;
    let left: Vec<_> = faults
        .iter()
        .copied()
        .filter(|fault| fault.applies_to(system).is_ok() && lock(kept).count(system.name, *fault) < rounds)
        .collect();
    if left.is_empty() {
        return Ok(());
    }
    let lease = system.lease(Duration::from_secs(args.lease));
    let mut servers = system.servers.start()?;
    for fault in left {
        let first = lock(kept).count(system.name, fault);
        for number in first..rounds {
            let seed = args.seed + number as u64;
            let round = round::play(system, fault, &mut *servers, lease, seed)?;
            println!(
                "{} {} {seed}: {}",
                system.name,
                fault.name(),
                serde_json::to_string(&round)?
            );
            lock(kept).add(system.name, fault, round)?;
            if fault == Fault::Failover {
                // The primary is another one now.
                servers = system.servers.start()?;
            }
        }
    }
    Ok(())
}
