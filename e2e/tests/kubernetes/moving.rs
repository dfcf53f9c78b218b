//! The operator moves to another root of its ensemble, in the documented order and in the wrong one.

use lockkeeper_product::space::{Mend, Space, calm};
use lockkeeper_testbed::ensemble::{SUPER, block_on, connector};
use serde_json::json;

const PAGE: &str = include_str!("../../../docs/lifecycle.md");

/// Where the operator is led to.
const OTHER: &str = "/other";

/// Reason and message of the lock's `Ready`.
const WHY: &str = "{range .status.conditions[?(@.type=='Ready')]}{.reason} {.message}{end}";

#[test]
fn a_lock_whose_operator_moves_to_another_root_has_one_holder_there_when_its_pods_have_gone() {
    let Some(space) = Space::alone("moving") else {
        return;
    };
    let installation = space.installation;
    let mended = Mend(|| installation.install(&json!({})));
    let pair = space.pair(&calm(), &[]);

    // By the steps of the page.
    space.scale_to_zero("report");
    upgrade_as_the_page_says(&space);
    wait_as_the_page_says(&space);
    let first = scale_up(&space);
    let begins = space.begins();
    assert!(begins.iter().any(|(token, _)| *token == pair.token), "{begins:?}");
    assert_eq!(contenders(&space, OTHER), 2, "{}", space.story());
    assert_eq!(contenders(&space, "/lockkeeper"), 0);

    // Back in the wrong order, the upgrade first. A pod that comes meanwhile would be the first in its queue.
    installation.install(&json!({})).unwrap();
    let pods = space
        .kubectl(&["get", "pods", "--output=jsonpath={.items[*].metadata.name}"])
        .unwrap();
    let why = space.wait_for_lock("report", WHY, |why| why.starts_with("EnsembleChanged "));
    for pod in pods.split_whitespace() {
        assert!(why.contains(pod), "{why}");
    }
    space
        .kubectl(&["scale", "deployment/report", "--replicas=3"])
        .unwrap();
    space.wait_until_refused("admits no pod now");
    let known = space.part_of_lock("report", "{.status.holders[*].pod} {.status.queue[*].pod}");
    let waiter = pods.split_whitespace().find(|pod| *pod != first).unwrap();
    assert_eq!(known, format!("{first} {waiter}"), "what was known is kept");
    assert_eq!(contenders(&space, "/lockkeeper"), 0);
    space.assert_somebody_runs();
    assert_eq!(space.begins(), begins, "nobody else has run");

    // It moves as soon as nobody of the former root is left.
    space.scale_to_zero("report");
    wait_until_ready(&space);
    scale_up(&space);
    assert_eq!(contenders(&space, "/lockkeeper"), 2, "{}", space.story());
    assert_eq!(contenders(&space, OTHER), 0);
    drop(mended);
}

/// Two pods, of which one runs. Returns its name.
fn scale_up(space: &Space) -> String {
    // When a workload goes to zero, a pod that waited may run for a moment.
    let last = space.begins().iter().map(|(token, _)| *token).max().unwrap();
    space
        .kubectl(&["scale", "deployment/report", "--replicas=2"])
        .unwrap();
    let (_, holder, _) = space.wait_until_it_runs(last);
    space.wait_until_waiting_behind(&holder, "report", 1);
    space.assert_somebody_runs();
    holder
}

/// The page leaves out the names of chart and release, and waits for no rollout of the operator.
fn upgrade_as_the_page_says(space: &Space) {
    let (_, rest) = PAGE
        .split_once("`helm upgrade … --reset-then-reuse-values ")
        .unwrap();
    let (rest, _) = rest.split_once('`').unwrap();
    let words: Vec<_> = rest.split_whitespace().collect();
    assert!(
        words.contains(&&*format!("zookeeper.root={OTHER}")),
        "it moves to another root: {rest}"
    );
    space.installation.upgrade_with(&words).unwrap();
}

/// First for `False`, then for `True`; for the lock of this test, since those of earlier tests may still be ending.
fn wait_as_the_page_says(space: &Space) {
    let commands = PAGE.lines().filter_map(|line| {
        let words = line.trim().strip_prefix("kubectl wait dlock --all ")?;
        Some(words.strip_prefix("--all-namespaces ").unwrap())
    });
    let commands: Vec<_> = commands.collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let words: Vec<_> = ["wait", "dlock", "report"]
            .into_iter()
            .chain(command.split_whitespace())
            .collect();
        space
            .kubectl(&words)
            .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
    }
}

fn wait_until_ready(space: &Space) {
    let ready = ["wait", "dlock", "report", "--for=condition=Ready", "--timeout=5m"];
    space
        .kubectl(&ready)
        .unwrap_or_else(|error| panic!("{error:#}\n{}", space.story()));
}

/// How many pods are in the lock's queue below a root.
fn contenders(space: &Space, root: &str) -> usize {
    let ensemble = space.installation.ensemble();
    let server = ensemble.address(0).to_string();
    let queue = format!("{root}/locks/{}/report", space.name);
    let children = block_on(ensemble.observer(), || async {
        let connector = connector().with_auth("digest", SUPER.as_bytes());
        connector.connect(&server).await?.list_children(&queue).await
    });
    children.unwrap().unwrap().len()
}
