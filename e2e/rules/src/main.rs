//! `lockkeeper-rules`: removes each safety rule in turn, and prints which test fails.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use clap::builder::PossibleValuesParser;
use lockkeeper_rules::cargo::Cargo;
use lockkeeper_rules::list::{self, Area};
use lockkeeper_rules::page::page;
use lockkeeper_rules::scratch::Scratch;
use lockkeeper_rules::table::{self, Line};

/// Removes each safety rule in turn, and prints which test fails. It is a failure if no test fails
#[derive(Debug, Parser)]
#[command(name = "lockkeeper-rules")]
struct Args {
    /// Only the rules of this area
    #[arg(long, value_parser = PossibleValuesParser::new(list::AREAS.map(|(name, _)| name)))]
    area: Option<String>,
    /// Only the rules with these words in their sentence
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
    /// Run all tests of the same file, and name each that fails
    #[arg(long)]
    any: bool,
    /// Print docs/rules.md, and remove nothing
    #[arg(long)]
    markdown: bool,
}

impl Args {
    /// The selected rules.
    fn choose(&self, mut areas: Vec<Area>) -> Result<Vec<Area>> {
        if let Some(name) = &self.area {
            areas.retain(|area| area.name == name);
        }
        if let Some(words) = &self.only {
            let words = words.to_lowercase();
            for area in &mut areas {
                area.rules
                    .retain(|rule| rule.rule.to_lowercase().contains(&words));
            }
        }
        ensure!(
            areas.iter().any(|area| !area.rules.is_empty()),
            "no rule has these words"
        );
        Ok(areas)
    }
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let root = root()?;
    let areas = list::read(&root)?;
    if args.markdown {
        print!("{}", page(&areas));
        return Ok(ExitCode::SUCCESS);
    }
    let lines = remove_all(&args, &root, &args.choose(areas)?)?;
    println!();
    for line in &lines {
        println!("{line}");
    }
    let bad: Vec<_> = lines.iter().filter(|line| !line.verdict.is_good()).collect();
    println!(
        "\n{} rules taken out, {} of them missed by no test",
        lines.len(),
        bad.len()
    );
    for line in &bad {
        println!("{line}");
    }
    Ok(if bad.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn remove_all(args: &Args, root: &Path, areas: &[Area]) -> Result<Vec<Line>> {
    let is_interrupted = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_interrupted))?;
    }
    let scratch = Scratch::open(root)?;
    let cargo = Cargo::new(&scratch, is_interrupted);
    let rules: Vec<_> = areas.iter().flat_map(|area| &area.rules).collect();
    let mut done = 0;
    table::fill(&cargo, &scratch, &rules, root, args.any, |line| {
        done += 1;
        eprintln!("{done} of {}: {line}", rules.len());
    })
}

/// The repository that this program was built from.
fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.map(Path::to_owned).context("this crate is in no workspace")
}
