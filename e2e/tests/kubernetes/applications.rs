//! Applications that end, and applications that do not.

use lockkeeper_product::space::{BOUND, Space, UNTIL_TOLD, calm};
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

#[test]
fn an_application_that_exits_gives_the_lock_to_the_other_pod_at_once() {
    let Some(space) = Space::new("exits") else {
        return;
    };
    let pair = space.pair(&calm(), &UNTIL_TOLD);
    space.end_application();
    space.assert_other_runs(&pair);
}

#[test]
fn an_application_that_crashes_is_started_again_by_the_kubelet_and_the_others_run_meanwhile() {
    let Some(space) = Space::new("crashes") else {
        return;
    };
    let pair = space.pair(&calm(), &[&UNTIL_TOLD[..], &["--exit-code", "3"]].concat());
    space.end_application();
    space.assert_other_runs(&pair);
    let code = "--output=jsonpath={.status.containerStatuses[0].lastState.terminated.exitCode}";
    space.wait_for(&["get", "pod", &pair.holder, code], |code| code == "3");
    // The other one crashes, too.
    space.end_application();
    let again = || {
        let began = space.begins();
        (began.iter().filter(|(_, name)| *name == pair.holder).count() > 1).then_some(())
    };
    wait_for(BOUND, again).unwrap_or_else(|| panic!("{}", space.story()));
    space.assert_exclusive();
}

#[test]
fn an_application_that_exits_and_is_to_hold_starts_again_under_its_token() {
    let Some(space) = Space::new("holds") else {
        return;
    };
    let pair = space.pair(&json!({ "sessionTimeout": "30s", "onExit": "Hold" }), &UNTIL_TOLD);
    space.end_application();
    let again = || {
        let began = space.begins_after(&pair);
        (!began.is_empty()).then_some(began)
    };
    let began = wait_for(BOUND, again).unwrap_or_else(|| panic!("{}", space.story()));
    assert!(
        began
            .iter()
            .all(|begin| *begin == (pair.token, pair.holder.clone())),
        "{began:?}"
    );
}

#[test]
fn an_application_that_hangs_on_sigterm_is_killed_with_its_pod_and_the_next_one_runs_after_it() {
    let Some(space) = Space::new("hangs") else {
        return;
    };
    let pair = space.pair(&json!({}), &["--ignore-sigterm", "--fork", "2"]);
    space
        .kubectl(&["delete", "pod", &pair.holder, "--wait=false"])
        .unwrap();
    space.assert_other_runs(&pair);
}
