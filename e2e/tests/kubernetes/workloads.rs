//! One pod of a workload runs at a time, whatever the workload is.

use serde_json::json;

use crate::space::Space;

#[test]
fn of_two_pods_of_an_annotated_deployment_one_runs_and_the_lock_is_shown() {
    let Some(space) = Space::new("one-of-two") else {
        return;
    };
    let pod = space.pod(&[space.recording(&[])]);
    space.apply(&[
        space.lock("report", json!({})),
        space.workload("Deployment", "report", Some(2), pod),
    ]);
    let (token, holder, _) = space.wait_until_it_runs(0);
    let row = space.eventually(
        &["get", "distributedlock", "report", "--no-headers"],
        |row| row.contains(&holder),
    );
    assert!(row.contains(&token.to_string()), "{row}");
    space.eventually(
        &["get", "distributedlock", "report", "--output=jsonpath={.status.waiting}"],
        |waiting| waiting == "1",
    );
    space.assert_exclusive();
}
