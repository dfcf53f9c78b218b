//! The first act: three workers of `lockkeeper run` under one lock on real servers.

use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::binaries;
use lockkeeper_testbed::owner::Owner;
use lockkeeper_testbed::{Config, Ensemble, java};
use lockkeeper_testbed::{Network, Unsupported};

use crate::acts;
use crate::console::Console;
use crate::interrupted::{Interrupted, interrupted_or};
use crate::options::{Ending, Options};
use crate::results::{draw, results_directory};
use crate::stage::Stage;
use crate::summary;

pub(crate) fn play(options: &Options) -> anyhow::Result<Ending> {
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
        // All started processes have to be gone before we say so.
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
    console.line(&format!("Records and logs of all workers: {}", results.display()))?;
    Ok(if report.is_clean {
        Ending::Clean
    } else {
        Ending::Violated
    })
}

/// Whether connections can be cut here. This makes a network, and with that a user namespace, before any
/// output.
fn find_out_about_cuts(loopback: bool) -> anyhow::Result<Result<(), Unsupported>> {
    let owner = Owner::new();
    let network = if loopback {
        Network::loopback(&owner, "--loopback was given")?
    } else {
        Network::new(&owner)?
    };
    Ok(network.can_cut())
}

/// Builds missing programs and starts the servers, with a line about each step that may take long.
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
