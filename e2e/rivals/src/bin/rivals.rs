//! Runs the locks of the field under faults, or measures what they cost and offer; see the library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::bail;
use clap::Parser;
use lockkeeper_rivals::faults::{FAULTS, Fault};
use lockkeeper_rivals::plan::{Plan, Settings};
use lockkeeper_rivals::provenance::Run;
use lockkeeper_rivals::results::{COSTS, Kept, lock};
use lockkeeper_rivals::systems::{OF_CROWDS, SYSTEMS, System};
use lockkeeper_rivals::{page, picture, properties, turns};

/// Does the same faults to each lock of the field, and writes down what each of them did.
///
/// A run that was stopped goes on where it was.
#[derive(Parser)]
#[command(name = "lockkeeper-rivals")]
struct Args {
    /// Only these systems: by name, or all with this part in their name.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these faults.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// Rounds of each fault, those included that the file of the results has already.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The lease of all systems that take any, in whole seconds.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=60))]
    lease: u64,
    /// The seed of the first round.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Rounds at once: they wait most of the time. Each begins when a quarter of the processors is idle.
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
    /// Ask what the locks offer when nothing breaks, one after the other, instead of faults.
    #[arg(long, conflicts_with_all = ["costs", "fairness"])]
    properties: bool,
    /// Only ask the servers for their versions, and write them down beside those of the libraries.
    #[arg(long, conflicts_with_all = ["costs", "fairness", "properties"])]
    versions: bool,
    /// Keep here, of each round in which two ran, the records of both and what they said and logged.
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["costs", "fairness", "properties", "versions"])]
    logs: Option<PathBuf>,
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
    let kept = Mutex::new(Kept::open(&args.results, args.lease as f64, Run::now()?)?);
    if args.costs {
        return turns::measure(&systems, args.turns, &kept);
    }
    if args.properties {
        return properties::measure(&systems, &kept);
    }
    if args.versions {
        properties::ask_versions(&systems, &kept)?;
        return Ok(ExitCode::SUCCESS);
    }
    let failed = AtomicUsize::new(0);
    if args.fairness {
        measure_fairness(&systems, &args, &kept, &failed);
    } else {
        let settings = Settings {
            rounds: args.rounds as usize,
            lease: Duration::from_secs(args.lease),
            seed: args.seed,
            logs: args.logs,
        };
        let plan = Plan::new(&systems, &faults, settings, &kept);
        if plan.is_empty() {
            println!(
                "{} has {} rounds of each of these already, or they do not apply: give more --rounds, or another --results",
                args.results.display(),
                args.rounds
            );
        }
        at_once(args.jobs, || {
            failed.fetch_add(plan.play(&kept), Ordering::Relaxed);
        });
    }
    Ok(match failed.into_inner() {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn at_once(jobs: u32, work: impl Fn() + Sync) {
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(&work);
        }
    });
}

fn measure_fairness(systems: &[&'static System], args: &Args, kept: &Mutex<Kept>, failed: &AtomicUsize) {
    let next = AtomicUsize::new(0);
    at_once(args.jobs, || {
        while let Some(system) = systems.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = turns::fairness(system, Duration::from_secs(60 * args.minutes), kept) {
                println!("{}: {error:#}", system.name);
                failed.fetch_add(1, Ordering::Relaxed);
                // That the file cannot be written shows at the next measurement of another system.
                let _ = lock(kept).miss(system.name, COSTS, format!("{error:#}"));
            }
        }
    });
}

fn write_page(results: &Path, folder: &Path) -> anyhow::Result<ExitCode> {
    let results = Kept::read(results)?;
    std::fs::create_dir_all(folder.join("rivals"))?;
    std::fs::write(folder.join("comparison.md"), page::render(&results))?;
    lockkeeper_palette::write(&folder.join("rivals/heat-map.svg"), |theme| {
        picture::heat_map(&results, theme)
    })?;
    lockkeeper_palette::write(&folder.join("rivals/scatter.svg"), |theme| {
        picture::scatter(&results, theme)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A whole name is that system alone.
fn systems(only: &[String]) -> anyhow::Result<Vec<&'static System>> {
    let all = || SYSTEMS.iter().chain(OF_CROWDS);
    let is_whole = |part: &String| System::named(part).is_some();
    let is_meant = |system: &System, part: &String| match is_whole(part) {
        true => system.name == part,
        false => system.name.contains(part.as_str()),
    };
    if let Some(unknown) = only
        .iter()
        .find(|part| !all().any(|system| is_meant(system, part)))
    {
        bail!("no system has \"{unknown}\" in its name: see --list");
    }
    let is_chosen = |system: &&System| only.is_empty() || only.iter().any(|part| is_meant(system, part));
    Ok(all().filter(is_chosen).collect())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_name_is_that_system_alone_and_a_part_is_all_that_have_it() {
        let names = |only: &str| -> Vec<_> {
            let found = systems(&[only.to_owned()]).unwrap();
            found.iter().map(|system| system.name).collect()
        };
        assert_eq!(names("kazoo"), ["kazoo"]);
        assert_eq!(names("kaz"), ["kazoo", "kazoo-lost"]);
        assert!(systems(&["redison".to_owned()]).is_err());
    }
}
