//! What tests of pods have in common, and what they ask of the records.

use lockkeeper_judge::record::Record;
use lockkeeper_product::DeletionWatch;
use lockkeeper_product::pod::{BOUND, Pod};

/// Asserts that nothing ran under `token` any more when the leader deleted its node.
pub fn assert_gone_before_the_deletion(pod: &Pod, token: i64, deletions: &DeletionWatch) {
    let deleted = deletions
        .wait_for_deletion(token, BOUND)
        .expect("the session expires");
    let last = pod
        .records()
        .iter()
        .filter(|record| record.token == token)
        .map(|record| record.at)
        .max();
    let last = last.unwrap();
    println!("gone {:?} before the leader deleted the node", deleted - last);
    assert!(last < deleted);
}

pub fn is_root() -> bool {
    let is_root = rustix::process::getuid().is_root();
    if !is_root {
        lockkeeper_skip::skip("a PID namespace for the container needs root");
    }
    is_root
}

pub fn all(pods: &[&Pod]) -> Vec<Record> {
    pods.iter().flat_map(|pod| pod.records()).collect()
}
