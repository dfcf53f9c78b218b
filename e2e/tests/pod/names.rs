//! Pods that start before the names of their servers can be resolved, as after a power cut, when they start
//! together with the cluster's DNS.

use std::fs;
use std::process::Command;

use lockkeeper_product::binaries;
use lockkeeper_product::pod::{BOUND, Pod};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};

use crate::judging::is_root;

#[test]
fn a_pod_waits_for_the_names_of_its_servers_and_holds_once_they_are_known() {
    if !is_root() {
        return;
    }
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let mut pod = Pod::empty(&ensemble, "early");
    let hosts = pod.volume.join("hosts");
    fs::write(&hosts, "").unwrap();
    // Mount the file as a kubelet mounts that of a pod.
    let mut command = Command::new("unshare");
    let script = "mount --bind hosts /etc/hosts && exec \"$@\"";
    command.args(["--mount", "sh", "-c", script, "sh"]);
    command.arg(binaries::lockkeeper().unwrap());
    pod.start_sidecar_by(
        command,
        "zk-0.invalid:2181,zk-1.invalid:2181",
        "/locks/early",
        &[],
    );
    pod.start_container("early", &[]);
    let waits = wait_for(BOUND, || pod.said().contains("waiting for it").then_some(()));
    waits.unwrap_or_else(|| panic!("{}", pod.said()));
    assert_eq!(
        pod.lockkeeper(&["wait", "--for", "queued", "--timeout", "1s"]),
        Some(81)
    );
    let known = format!(
        "{} zk-0.invalid\n{} zk-1.invalid\n",
        ensemble.address(0).ip(),
        ensemble.address(1).ip()
    );
    fs::write(&hosts, known).unwrap();
    pod.wait_until_it_runs(0);
}
