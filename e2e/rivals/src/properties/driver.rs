//! The steps of a probe, done by the driver of a lock.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::driver_commands;
use crate::probe::{Done, Probe, WAIT};
use crate::programs::named;
use crate::site::Site;
use crate::systems::System;

/// How long a driver may take to begin on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Runs the driver on one machine, with all clients of the script in it.
///
/// # Errors
/// When it cannot be built, or does not do all steps.
pub(super) fn run(
    system: &System,
    site: &Site,
    probe: Probe,
    lock: &str,
    lease: Duration,
    bound: Duration,
) -> anyhow::Result<Vec<Done>> {
    let (servers, machine) = (&*site.servers, &site.machines[0]);
    let file = |kind: &str| machine.directory().join(format!("{lock}.{kind}"));
    let script: Vec<_> = probe
        .script()
        .iter()
        .map(|(who, verb)| format!("{who} {}", verb.word()))
        .collect();
    let millis = |time: Duration| time.as_millis().to_string();
    let mut command =
        driver_commands::command(system)?.with_context(|| format!("{} has no driver", system.name))?;
    command
        .args([
            "--system",
            system.name_for_driver(),
            "--servers",
            &servers.addresses(),
        ])
        .args(["--lock", lock, "--name", machine.host.name()])
        .args(["--lease-ms", &millis(lease), "--probe", &script.join(",")])
        .args(["--bound-ms", &millis(bound), "--wait-ms", &millis(WAIT)])
        .args(servers.options())
        .stdin(Stdio::null())
        .stdout(File::create(file("events"))?)
        .stderr(File::create(file("log"))?);
    named(&mut command, servers.names());
    let ended = machine
        .host
        .spawn("probe", command)?
        .wait(PATIENCE + bound * script.len() as u32)?;
    let events = std::fs::read_to_string(file("events"))?;
    if !ended.is_some_and(|status| status.success()) {
        bail!(
            "the driver did not do all steps ({ended:?}):\n{events}\n{}",
            std::fs::read_to_string(file("log")).unwrap_or_default()
        );
    }
    read(&events)
}

/// The steps that a driver has told of.
fn read(events: &str) -> anyhow::Result<Vec<Done>> {
    let mut done = Vec::new();
    for line in events.lines() {
        let value: Value =
            serde_json::from_str(line).with_context(|| format!("{line:?} is no event of a probe"))?;
        if value.get("event").and_then(Value::as_str) == Some("step") {
            done.push(serde_json::from_value(value).with_context(|| format!("{line:?} is no step"))?);
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Outcome;

    #[test]
    fn a_step_is_read_with_or_without_the_call_and_the_words_of_the_library() {
        let events = "{\"event\":\"ready\",\"at\":1}\n\
                      {\"event\":\"step\",\"at\":2,\"outcome\":\"got\",\"ms\":3,\"call\":null}\n\
                      {\"event\":\"step\",\"at\":3,\"outcome\":\"not-offered\",\"ms\":0,\"call\":\"x\",\"what\":\"y\"}\n";
        let done = read(events).unwrap();
        assert_eq!(done.len(), 2);
        assert_eq!((done[0].outcome, done[0].ms), (Outcome::Got, 3));
        assert_eq!(done[1].outcome, Outcome::NotOffered);
        assert_eq!(done[1].call.as_deref(), Some("x"));
        assert!(read("Exception in thread\n").is_err());
    }
}
