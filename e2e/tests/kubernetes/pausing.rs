//! `onLoss: Pause` and `onSuspect: Pause`: the guard stops the application, and resumes it only when the
//! rules allow it.

use lockkeeper_product::space::{APPLICATION, BOUND, Mend, Space};
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

#[test]
fn a_paused_application_goes_on_in_its_place_under_a_new_token_when_its_pod_holds_again() {
    let Some(space) = Space::alone("pause-on-loss") else {
        return;
    };
    let pair = space.pair(&json!({ "onLoss": "Pause" }), &[]);
    let node = space.node_of(&pair.holder);
    let process = space.process(&pair.holder, APPLICATION);
    let healed = Mend(|| Ok(space.installation.heal_to_ensemble(node)?));
    space.installation.cut_from_ensemble(node).unwrap();
    let next = space.wait_until_it_runs(pair.token);
    space.assert_exclusive();
    assert!(is_stopped(process), "paused while another one runs");
    drop(healed);
    space.wait_until_waiting_behind(&next.1, "report", 1);
    assert!(is_stopped(process), "paused while it waits");

    space.release(&next.1);
    wait_for(BOUND, || (!is_stopped(process)).then_some(())).unwrap_or_else(|| panic!("{}", space.story()));
    space.wait_until_held_by(&pair.holder, "report");
    // It records under the token that it was started with, so no second process was started.
    assert_eq!(
        space
            .begins()
            .iter()
            .filter(|(_, name)| *name == pair.holder)
            .count(),
        1
    );
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
fn is_stopped(process: rustix::process::Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap();
    let (_, state) = stat.rsplit_once(") ").unwrap();
    state.starts_with('T')
}
