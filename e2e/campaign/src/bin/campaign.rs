//! Runs the trials, many rounds of each; see the library's `trials` module.

use std::io::Write;
use std::process::ExitCode;

use anyhow::bail;
use clap::Parser;
use fastrand::Rng;
use lockkeeper_campaign::random_faults::{SEED_VARIABLE, seed_from_environment};
use lockkeeper_campaign::trials::{TRIALS, Trial};
use lockkeeper_campaign::{Context, Figures, LeaseOption, Sample};
use lockkeeper_judge::histogram;
use lockkeeper_simulation::Hazard;
use lockkeeper_testbed::binaries;

/// Tries to break lockkeeper run on real ZooKeeper servers, and prints each question with its measurement.
///
/// Exits with 1 when a promise was violated, or a trial could not be carried out.
#[derive(Parser)]
#[command(name = "lockkeeper-campaign")]
struct Args {
    /// Rounds of each trial.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Only this trial; may be given several times.
    #[arg(long = "trial", value_name = "NAME")]
    trials: Vec<String>,
    /// Minutes of random faults, of each trial that has them, and of the trial `load`.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    minutes: u32,
    /// Lease duration of contenders for which a trial states none: DURATION, auto or off. Their session timeout
    /// is at least twice as long, and their stop grace short enough. Without --trial, only trials that take it
    /// run.
    #[arg(long, value_name = "DURATION|auto|off")]
    lease_duration: Option<LeaseOption>,
    /// Histories of the trial `simulation`; a single one is printed line by line.
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    histories: u64,
    /// Hazards of these histories beside ordinary faults, in place of all hazards; may be given several
    /// times.
    #[arg(long = "hazard", value_name = "NAME")]
    hazards: Vec<Hazard>,
    /// Makes the same choices again (also LOCKKEEPER_SEED); the timing of the machine still differs.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the names of the trials.
    #[arg(long)]
    list: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.list {
        for trial in TRIALS {
            println!("{:<26}{}", trial.name, trial.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let seed = args.seed.unwrap_or_else(seed_from_environment);
    let settings = match args.lease_duration {
        Some(lease) => format!("{SEED_VARIABLE}={seed}, lease duration {lease}"),
        None => format!("{SEED_VARIABLE}={seed}"),
    };
    println!("{settings}");
    let mut table = Vec::new();
    for trial in chosen(&args)? {
        println!("\n=== {}: {} ===", trial.name, trial.about);
        let figures = run(trial, &args, seed);
        match &figures {
            Ok(figures) => print!("{figures}"),
            Err(error) => println!("FAILED: {error:#}"),
        }
        table.push((trial.name, figures));
    }
    println!("\n=== asked / measured ({settings}) ===");
    let mut is_clean = true;
    for (name, figures) in table {
        match figures {
            Ok(figures) => {
                print!("{name}\n{figures}");
                draw(name, &figures.spares, &settings)?;
            }
            Err(error) => {
                is_clean = false;
                println!("{name}\n  FAILED: {error:#}");
            }
        }
    }
    Ok(if is_clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Draws the spare times of a trial that measures them, once for each theme.
fn draw(trial: &str, spares: &Sample, settings: &str) -> anyhow::Result<()> {
    if spares.is_empty() {
        return Ok(());
    }
    let title = "From an application's last instruction to the deletion of its node";
    let subtitle = format!("trial {trial}, {settings}: {spares}");
    let file = binaries::target_directory()?.join(format!("campaign-{trial}.svg"));
    let files = lockkeeper_palette::write(&file, |theme| {
        histogram::render(spares.all(), title, &subtitle, theme)
    })?;
    for file in files {
        println!("  drawn: {}", file.display());
    }
    Ok(())
}

fn chosen(args: &Args) -> anyhow::Result<Vec<&'static Trial>> {
    let names = &args.trials;
    if let Some(unknown) = names
        .iter()
        .find(|&name| TRIALS.iter().all(|trial| trial.name != name))
    {
        let known: Vec<_> = TRIALS.iter().map(|trial| trial.name).collect();
        bail!(
            "there is no trial \"{unknown}\": take one of {}",
            known.join(", ")
        );
    }
    let is_named = |trial: &&Trial| names.iter().any(|name| name == trial.name);
    let may_run = |trial: &&Trial| trial.takes_lease || args.lease_duration.is_none();
    if let Some(other) = TRIALS.iter().find(|trial| is_named(trial) && !may_run(trial)) {
        let takers: Vec<_> = TRIALS.iter().filter(|trial| trial.takes_lease).collect();
        let takers: Vec<_> = takers.iter().map(|trial| trial.name).collect();
        bail!(
            "the trial \"{}\" takes no --lease-duration: only {} do",
            other.name,
            takers.join(", ")
        );
    }
    let is_chosen = |trial: &&Trial| (names.is_empty() && may_run(trial)) || is_named(trial);
    Ok(TRIALS.iter().filter(is_chosen).collect())
}

fn run(trial: &Trial, args: &Args, seed: u64) -> anyhow::Result<Figures> {
    let mut out = std::io::stdout();
    out.flush()?;
    let mut context = Context {
        rounds: args.rounds,
        minutes: Some(args.minutes),
        lease: args.lease_duration.unwrap_or_default(),
        // Each trial has a seed of its own, so leaving out others changes nothing.
        random: Rng::with_seed(trial.name.bytes().fold(seed, |mixed, byte| {
            mixed.wrapping_mul(31).wrapping_add(u64::from(byte))
        })),
        seed,
        histories: args.histories,
        hazards: args.hazards.clone(),
        out: &mut out,
    };
    (trial.run)(&mut context)
}
