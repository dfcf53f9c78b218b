//! `onLoss: Pause` and `onSuspect: Pause`: the guard stops the application, and resumes it only when the
//! rules allow it.

use lockkeeper_product::space::{APPLICATION, BOUND, Mend, Pair, Space};
use lockkeeper_testbed::process::wait_for;
use rustix::process::{Pid, test_kill_process};
use serde_json::json;

/// Of a test that a machine without a processor for 0.1 s may spoil.
const ROUNDS: u8 = 3;

#[test]
fn a_paused_application_goes_on_in_its_place_under_a_new_token_when_its_pod_holds_again() {
    let Some(space) = Space::alone("pause-on-loss") else {
        return;
    };
    let mut first = Some(space.pair(&json!({ "onLoss": "Pause" }), &[]));
    let is_paused = (0..ROUNDS).any(|_| {
        let pair = first.take().unwrap_or_else(|| space.started());
        goes_on_after_a_pause(&space, &pair)
    });
    assert!(is_paused, "it is always killed\n{}", space.story());
}

/// False if the guard has killed the application: then nothing is shown.
fn goes_on_after_a_pause(space: &Space, pair: &Pair) -> bool {
    let node = space.node_of(&pair.holder);
    let process = space.process(&pair.holder, APPLICATION);
    let healed = Mend(|| Ok(space.installation.heal_to_ensemble(node)?));
    space.installation.cut_from_ensemble(node).unwrap();
    let next = space.wait_until_it_runs(pair.token);
    space.assert_exclusive();
    if was_killed(process) {
        return false;
    }
    assert!(is_stopped(process), "paused while another one runs");
    drop(healed);
    space.wait_until_waiting_behind(&next.1, "report", 1);
    assert!(is_stopped(process), "paused while it waits");

    space.release(&next.1);
    wait_for(BOUND, || (!is_stopped(process)).then_some(())).unwrap_or_else(|| panic!("{}", space.story()));
    space.wait_until_held_by(&pair.holder, "report");
    // It records under the token that it was started with, so no second process was started.
    let begun = space.begins_after(pair);
    assert!(begun.iter().all(|(_, name)| *name != pair.holder), "{begun:?}");
    true
}

#[test]
fn a_suspected_application_is_stopped_and_thawed_when_its_lock_is_confirmed() {
    let Some(space) = Space::alone("pause-on-suspect") else {
        return;
    };
    let lock = json!({ "onSuspect": "Pause", "sessionTimeout": "20s" });
    let pair = space.pair(&lock, &[]);
    let node = space.node_of(&pair.holder);
    let process = space.process(&pair.holder, APPLICATION);
    let healed = Mend(|| Ok(space.installation.heal_to_ensemble(node)?));
    space.installation.cut_from_ensemble(node).unwrap();
    wait_for(BOUND, || is_stopped(process).then_some(())).unwrap_or_else(|| panic!("{}", space.story()));
    drop(healed);
    wait_for(BOUND, || (!is_stopped(process)).then_some(())).unwrap_or_else(|| panic!("{}", space.story()));
    space.assert_undisturbed(&pair);
}

/// Whether the kernel has stopped it (`T`, proc(5)).
fn is_stopped(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap();
    let (_, state) = stat.rsplit_once(") ").unwrap();
    state.starts_with('T')
}

/// A guard that does not see SIGSTOP work within 0.1 s kills, as it may on a busy machine.
fn was_killed(process: Pid) -> bool {
    test_kill_process(process).is_err()
}
