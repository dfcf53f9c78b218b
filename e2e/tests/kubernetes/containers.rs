//! The kinds of guarded containers, and how each is guarded.

use lockkeeper_product::space::Space;
use rustix::io::Errno;
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

/// A pair guarded in the requested mode, with a change of the container.
fn pair(space: &Space, guard: &str, change: impl Fn(&mut Value)) -> lockkeeper_product::space::Pair {
    let mut container = space.recording(&[]);
    change(&mut container);
    let mut workload = space.workload("Deployment", "report", Some(2), space.pod(&[container]));
    workload["metadata"]["annotations"]["lockkeeper.io/guard"] = json!(guard);
    space.apply(&[space.lock("report", &json!({})), workload]);
    let pair = space.started();
    // The status says which mode is in force.
    let guards = "{.status.holders[*].guard} {.status.queue[*].guard}";
    space.wait_for_lock("report", guards, |guards| guards == format!("{guard} {guard}"));
    pair
}

/// Removes the command from the pod: only the image has it.
fn without_command(container: &mut Value) {
    let mut words = container["command"].as_array().unwrap().clone();
    words.remove(0);
    let container = container.as_object_mut().unwrap();
    container.remove("command");
    container.insert("args".to_owned(), Value::Array(words));
}

#[test]
fn a_command_that_only_the_image_knows_is_wrapped_all_the_same() {
    let Some(space) = Space::new("entrypoint") else {
        return;
    };
    let pair = pair(&space, "wrap", without_command);
    let command = "--output=jsonpath={.spec.containers[0].command} {.spec.containers[0].args}";
    let words = space.kubectl(&["get", "pod", &pair.holder, command]).unwrap();
    assert!(
        words.contains(r#""guard""#) && words.contains(r#""/program""#),
        "{words}"
    );
    space.release(&pair.holder);
    space.assert_other_runs(&pair);
}

#[test]
fn a_container_is_guarded_by_signals_from_a_sidecar_of_the_same_user() {
    let Some(space) = Space::new("same-user") else {
        return;
    };
    let pair = pair(&space, "signal", |container| {
        without_command(container);
        container["securityContext"] = json!({ "runAsUser": 1000, "runAsNonRoot": true });
    });
    space.release(&pair.holder);
    let (token, next) = space.assert_other_runs(&pair);
    // The first pod is gated anew, and gets the lock back.
    space.wait_until_waiting_behind(&next, "report", 1);
    space.release(&next);
    let (_, again, _) = space.wait_until_it_runs(token);
    assert_eq!(again, pair.holder);
    space.assert_exclusive();
}

#[test]
fn a_container_of_root_is_guarded_by_signals_with_the_one_capability_for_it() {
    let Some(space) = Space::new("root") else {
        return;
    };
    let pair = pair(&space, "signal", without_command);
    let rights = "--output=jsonpath={.spec.initContainers[0].securityContext}";
    let rights = space.kubectl(&["get", "pod", &pair.holder, rights]).unwrap();
    assert!(
        rights.contains(r#""add":["KILL"]"#) && rights.contains(r#""drop":["ALL"]"#),
        "{rights}"
    );
    space.release(&pair.holder);
    space.assert_other_runs(&pair);
}

#[test]
fn a_container_is_guarded_by_signals_by_whatever_path_its_last_words_are_written() {
    let Some(space) = Space::new("last-words") else {
        return;
    };
    // A link in the image: the kubelet's file is mounted at /run/term.
    let pair = pair(&space, "signal", |container| {
        container["terminationMessagePath"] = json!("/var/run/term");
        let command = container["command"].as_array_mut().unwrap();
        command.push(json!("--ignore-sigterm"));
        without_command(container);
    });
    space.release(&pair.holder);
    let (_, next) = space.assert_other_runs(&pair);
    space.wait_until_waiting_behind(&next, "report", 1);
    space.assert_exclusive();
}

#[test]
fn a_container_beside_which_the_guard_dies_is_stopped_in_time_with_and_without_its_keeper() {
    let Some(space) = Space::new("beside") else {
        return;
    };
    let pair = pair(&space, "signal", without_command);
    let (mut token, mut holder) = (pair.token, pair.holder);
    // The guard is the first process of the sidecar and starts the keeper, again whenever that ends; in the last round both
    // are killed at once, as when their container is out of memory.
    let (guard, keeper) = ("/lockkeeper sidecar", "/proc/self/exe sidecar");
    for victims in [&[guard][..], &[guard, keeper]] {
        let victims: Vec<_> = victims
            .iter()
            .map(|victim| space.process(&holder, victim))
            .collect();
        for victim in victims {
            // If the first one was the first process of the container, the other one may have ended with it.
            match kill_process(victim, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => panic!("{error}"),
            }
        }
        (token, holder, _) = space.wait_until_it_runs(token);
        space.wait_until_waiting_behind(&holder, "report", 1);
        space.assert_exclusive();
    }
}

#[test]
fn a_guard_that_stands_still_beside_a_container_is_killed_with_it_and_the_lock_goes_on() {
    let Some(space) = Space::new("beside-stopped") else {
        return;
    };
    let pair = pair(&space, "signal", |container| {
        let command = container["command"].as_array_mut().unwrap();
        command.push(json!("--ignore-sigterm"));
        without_command(container);
    });
    let guard = space.process(&pair.holder, "/lockkeeper sidecar");
    kill_process(guard, Signal::STOP).unwrap();
    // The guard is the first process of the sidecar: when it ends, the command that was executed there ends
    // too.
    let ended = space
        .ask_to_release(&pair.holder)
        .expect_err("its container ends");
    assert!(format!("{ended:#}").contains("exit code 137"), "{ended:#}");
    space.assert_other_runs(&pair);
    space.wait_until_waiting("report", 1);
    space.assert_exclusive();
}
