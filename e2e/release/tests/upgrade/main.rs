//! Operator and sidecars are upgraded from an older release under a lock, and go back.
//!
//! `make test-upgrade FROM=REVISION` names the older checkout in `LOCKKEEPER_OLDER`.

use std::path::PathBuf;

use lockkeeper_product::installation::Source;
use lockkeeper_product::space::{BOUND, Space, begin_with, calm};
use lockkeeper_testbed::process::wait_for;

#[test]
fn pods_of_two_releases_share_a_lock_through_an_upgrade_and_the_way_back() {
    let Some(older) = std::env::var_os("LOCKKEEPER_OLDER").map(PathBuf::from) else {
        return lockkeeper_skip::skip("LOCKKEEPER_OLDER names no older checkout (`make test-upgrade` does)");
    };
    begin_with(Source::built(older));
    let Some(space) = Space::alone("upgrade") else {
        return;
    };
    let installation = space.installation;
    let pair = space.pair(&calm(), &[]);
    let of_old = sidecars(&space);
    assert_eq!(of_old.len(), 1, "{of_old:?}");
    let revision = installation.revision().unwrap();

    // The operator first: nobody loses the lock by it, and older sidecars hand over under the newer operator.
    installation.change_to(&Source::own()).unwrap();
    space.assert_undisturbed(&pair);
    space.release(&pair.holder);
    let (_, holder) = space.assert_other_runs(&pair);
    space.wait_until_waiting_behind(&holder, "report", 1);
    assert_eq!(sidecars(&space), of_old);

    // Then the sidecars, which stand in one queue with the older ones until those have gone.
    let holder = roll_out(&space);
    let of_new = sidecars(&space);
    assert!(of_new.len() == 1 && of_new != of_old, "{of_new:?}");

    // The way back. The chart of the resource stays at the newer release, as the documentation says.
    let before = space.begins();
    installation
        .roll_back(&revision)
        .unwrap_or_else(|error| panic!("{error:#}"));
    assert_goes_on(&space, before.last().unwrap().0);
    assert_eq!(space.begins(), before);
    space.release(&holder);
    let (_, holder, _) = space.wait_until_it_runs(before.last().unwrap().0);
    space.wait_until_waiting_behind(&holder, "report", 1);
    assert_eq!(sidecars(&space), of_new);
    roll_out(&space);
    assert_eq!(sidecars(&space), of_old);
}

/// Replaces all pods. Returns the one that holds the lock then.
fn roll_out(space: &Space) -> String {
    let former: Vec<_> = space.begins().into_iter().map(|(_, pod)| pod).collect();
    for words in [&["restart"][..], &["status", "--timeout=180s"]] {
        let rollout = [&["rollout", words[0], "deployment/report"], &words[1..]].concat();
        space
            .kubectl(&rollout)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    }
    let newest = || {
        let (token, pod) = space.begins().last().cloned()?;
        (!former.contains(&pod)).then_some((token, pod))
    };
    let (token, holder) = wait_for(BOUND, newest).unwrap_or_else(|| panic!("{}", space.story()));
    space.wait_until_waiting_behind(&holder, "report", 1);
    assert_goes_on(space, token);
    holder
}

/// Asserts that the holder of a token writes records from now on, and that no two ran at the same time.
fn assert_goes_on(space: &Space, token: i64) {
    space.assert_somebody_runs();
    let last = space.records().into_iter().max_by_key(|record| record.at);
    assert_eq!(last.unwrap().token, token, "{}", space.story());
}

/// The images of the sidecars of the two pods, each once, when those that were replaced have gone.
fn sidecars(space: &Space) -> Vec<String> {
    let images = "--output=jsonpath={.items[*].spec.initContainers[?(@.name==\"lockkeeper\")].image}";
    let images = space.wait_for(&["get", "pods", "--selector=app=worker", images], |images| {
        images.split_whitespace().count() == 2
    });
    let mut images: Vec<_> = images.split_whitespace().map(str::to_owned).collect();
    images.sort_unstable();
    images.dedup();
    images
}
