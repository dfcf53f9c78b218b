//! Processes of Lockkeeper itself that die, or stand still.

use lockkeeper_e2e::space::{GUARD, KEEPER, Space};
use rustix::process::{Signal, kill_process};
use serde_json::json;

/// Sends a signal to a process of the pod that holds, and looks on until another one does.
fn after(name: &'static str, command: &str, signal: Signal) {
    let Some(space) = Space::new(name) else {
        return;
    };
    // Nothing but our own lets it end.
    let pair = space.pair(&json!({}), &["--ignore-sigterm"]);
    kill_process(space.process(&pair.holder, command), signal).unwrap();
    let (_, next) = space.assert_handed_over(&pair);
    println!("{} lost it to {next}", pair.holder);
    // Whatever was broken is whole again.
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}

#[test]
fn a_killed_keeper_costs_its_application_the_lock_in_time() {
    after("keeper-killed", KEEPER, Signal::KILL);
}

#[test]
fn a_keeper_that_stands_still_costs_its_application_the_lock_in_time() {
    after("keeper-stopped", KEEPER, Signal::STOP);
}

#[test]
fn a_killed_guard_takes_its_application_along_and_the_lock_goes_on() {
    after("guard-killed", GUARD, Signal::KILL);
}
