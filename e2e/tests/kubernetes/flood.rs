//! Strangers at the port at which a keeper answers its kubelet.

use std::net::SocketAddrV4;

use lockkeeper_lock::BootInstant;
use lockkeeper_product::space::{BOUND, Space, calm};
use lockkeeper_testbed::faults::Flood;
use lockkeeper_testbed::process::wait_for;

use crate::probes::liveness_probes;

/// The keeper's port for probes and metrics.
const PORT: u16 = 9808;

/// Clients of a flood; one alone is too slow on a busy machine.
const CLIENTS: usize = 4;

/// Their connections a second, 1,100 in all: 1,000 must do no harm, and some fail.
const EACH: u32 = 275;

/// A kubelet restarts a container after this many failed probes in a row (`failureThreshold`).
const THRESHOLD: u64 = 3;

/// So many that a keeper that answers none of them is restarted meanwhile.
const PROBES: u64 = THRESHOLD + 2;

/// As many as come at 1,000 a second in the time of three probes, one every 10 s.
const CONNECTIONS: u64 = 30_000;

/// The restarts of a pod's keeper.
const RESTARTS: &str =
    "--output=jsonpath={.status.initContainerStatuses[?(@.name=='lockkeeper')].restartCount}";

#[test]
fn no_kubelet_restarts_a_keeper_under_a_flood_of_silent_connections_and_its_lock_stays() {
    let Some(space) = Space::alone("flood") else {
        return;
    };
    let pair = space.pair(&calm(), &[]);
    // The application may run before the kubelet has told the pod's address.
    let address = space.wait_for(
        &["get", "pod", &pair.holder, "--output=jsonpath={.status.podIP}"],
        |address| !address.is_empty(),
    );
    let door = SocketAddrV4::new(address.parse().unwrap(), PORT);
    let own = space.cluster.node(space.node_of(&pair.holder)).unwrap();
    for (name, host) in [
        ("another host", space.cluster.control_plane().unwrap()),
        // As from a pod with `hostNetwork`, which shares the kubelet's address.
        ("the pod's own node", own.host()),
    ] {
        let asked = || {
            ["successful", "failed"].map(|result| liveness_probes(&space, &pair.holder, "lockkeeper", result))
        };
        let restarts = || space.kubectl(&["get", "pod", &pair.holder, RESTARTS]).unwrap();
        let before = restarts();
        let [passed, failed] = asked();
        let begun = BootInstant::now();
        let floods = [(); CLIENTS].map(|()| Flood::begin(host, door, EACH));
        let opened = || floods.iter().map(Flood::opened).sum::<u64>();
        let probed = || {
            let [now_passed, now_failed] = asked();
            let probes = now_passed + now_failed - passed - failed;
            (probes >= PROBES && opened() >= CONNECTIONS).then_some(now_failed - failed)
        };
        let failed = wait_for(BOUND, probed).unwrap_or_else(|| panic!("{}", space.story()));
        let rate = opened() as f64 / (BootInstant::now() - begun).as_secs_f64();
        println!("{rate:.0} connections a second from {name}: {failed} probes failed");
        drop(floods);
        assert_eq!(restarts(), before, "{}", space.story());
        space.assert_undisturbed(&pair);
    }
    space.assert_exclusive();
    // Nor is it a keeper that does nothing but answer.
    space.release(&pair.holder);
    space.assert_other_runs(&pair);
}
