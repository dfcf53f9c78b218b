//! The demonstration: three workers under one lock on real servers, while things break around them.
//!
//! Everything that it claims at the end is computed from what the guarded programs wrote down and
//! from what the ensemble's leader saw, as in the tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use lockkeeper_lock::BootInstant;

use crate::ensemble::{Config, Ensemble};
use crate::network::{Network, Unsupported};
use crate::owner::Owner;
use crate::timeline::{Timeline, svg};
use crate::{binaries, java};

mod acts;
mod console;
mod nodes;
mod pictures;
mod pods;
mod run;
mod stage;
mod summary;

use console::Console;
use stage::{Interrupted, Stage};

/// What the user asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is shown.
    pub act: Act,
    /// A further file for the picture.
    pub svg: Option<PathBuf>,
    /// Where picture, records and logs go; `demo` in the build's target directory by default.
    pub results: Option<PathBuf>,
    /// Use loopback addresses: nothing can be cut then.
    pub loopback: bool,
    /// Set to end the demonstration before its time.
    pub interrupted: Arc<AtomicBool>,
}

/// A part of the demonstration, complete in itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// `lockkeeper run`, without Kubernetes.
    Run,
    /// Pods on two nodes.
    Kubernetes,
}

/// How the demonstration ended, after everything that it started is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nobody ran at the same moment as another, and tokens grew.
    Clean,
    /// The checker has found what must not happen.
    Violated,
    /// The user did not want to see the rest.
    Interrupted,
}

/// Gives the demonstration on standard output.
///
/// May replace this process at its very start: see [`Network::new`].
///
/// # Errors
/// When something is missing on this machine, or a step did not happen within a minute.
pub fn run(options: &Options) -> anyhow::Result<Ending> {
    match options.act {
        Act::Run => run_first(options),
        Act::Kubernetes => match nodes::play(options) {
            Err(error) => interrupted_or(error),
            ending => ending,
        },
    }
}

fn run_first(options: &Options) -> anyhow::Result<Ending> {
    let can_cut = find_out_about_cuts(options.loopback)?;
    let mut console = Console::new();
    console.title("Lockkeeper: workers under one lock, on real ZooKeeper servers, while things break.")?;
    let results = results_directory(options)?;
    let mut stage = match set_up(options, console) {
        Ok(stage) => stage,
        Err(error) => return interrupted_or(error),
    };
    let played = acts::play(&mut stage, can_cut.as_ref().err());
    stage.console.clear()?;
    stage.keep_files(&results)?;
    if let Err(error) = played {
        // Everything that was started has to be gone when we say so.
        drop(stage);
        return interrupted_or(error.context(format!("records and logs are in {}", results.display())));
    }
    let (report, mut console) = summary::tell(stage)?;

    draw(
        &mut console,
        &report.timeline,
        results.join("timeline.svg"),
        options,
    )?;
    console.line(&format!("Records and logs of everybody: {}", results.display()))?;
    Ok(if report.is_clean {
        Ending::Clean
    } else {
        Ending::Violated
    })
}

/// Writes the picture of a timeline, and says where.
fn draw(console: &mut Console, timeline: &Timeline, file: PathBuf, options: &Options) -> anyhow::Result<()> {
    let picture = svg::render(timeline, "Lockkeeper: who ran under the lock, and when");
    for file in [Some(file), options.svg.clone()].into_iter().flatten() {
        fs::write(&file, &picture).with_context(|| format!("cannot write {}", file.display()))?;
        console.line(&format!("Picture: {}", file.display()))?;
    }
    Ok(())
}

/// Whether connections can be cut here. Makes a network, and with that a user namespace, before
/// anything has been said.
fn find_out_about_cuts(loopback: bool) -> anyhow::Result<Result<(), Unsupported>> {
    let owner = Owner::new();
    let network = if loopback {
        Network::loopback(&owner, "--loopback was given")?
    } else {
        Network::new(&owner)?
    };
    Ok(network.can_cut())
}

/// Builds what is missing and starts the servers, with a word about each that may take long.
fn set_up(options: &Options, mut console: Console) -> anyhow::Result<Stage> {
    let java = Command::new("java")
        .arg("-version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    java.context("cannot run java: ZooKeeper's servers need a JDK, 17 or newer, and Maven to fetch them")?;
    console.step(
        "Building lockkeeper with cargo (the first time: a minute or two)",
        || {
            binaries::lockkeeper()?;
            binaries::recorder()
        },
    )?;
    Interrupted::check(&options.interrupted)?;
    console.step(
        "Looking for ZooKeeper (the first time Maven fetches it: about half a minute)",
        java::classpath,
    )?;
    Interrupted::check(&options.interrupted)?;
    let config = Config {
        loopback: options.loopback,
        ..Config::default()
    };
    let ensemble = console.step("Starting three ZooKeeper servers (some seconds)", || {
        Ensemble::start(config)
    })?;
    Interrupted::check(&options.interrupted)?;
    Ok(Stage::new(
        ensemble,
        console,
        Arc::clone(&options.interrupted),
        BootInstant::now(),
    ))
}

fn interrupted_or(error: anyhow::Error) -> anyhow::Result<Ending> {
    if error.downcast_ref::<Interrupted>().is_some() {
        eprintln!("Interrupted; everything that was started has been stopped.");
        return Ok(Ending::Interrupted);
    }
    Err(error)
}

/// A directory for what stays, without that of an earlier run: tokens of two ensembles have no order.
fn results_directory(options: &Options) -> anyhow::Result<PathBuf> {
    let directory = match &options.results {
        Some(directory) => directory.clone(),
        None => binaries::target_directory()?.join("demo"),
    };
    // The acts leave theirs beside each other.
    let cleared = match options.act {
        Act::Run => clear(&directory),
        Act::Kubernetes => fs::create_dir_all(&directory),
    };
    cleared.with_context(|| format!("cannot prepare {}", directory.display()))?;
    Ok(directory)
}

fn clear(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|kind| kind == "record" || kind == "log")
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
