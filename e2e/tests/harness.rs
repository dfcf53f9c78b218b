//! The harness itself, on real servers.

use std::process::Command;
use std::time::Duration;

use lockkeeper_e2e::ensemble::{CLIENT_PORT, Mode};
use lockkeeper_e2e::process::wait_for;
use lockkeeper_e2e::{Config, Ensemble};
use lockkeeper_lock::BootInstant;

/// Generous: a machine with other work to do.
const BOUND: Duration = Duration::from_secs(30);

fn start(config: Config) -> Ensemble {
    let began = BootInstant::now();
    let ensemble = Ensemble::start(config).expect("the servers start");
    println!("{} servers serve after {:.2} s", ensemble.len(), (BootInstant::now() - began).as_secs_f64());
    ensemble
}

#[test]
fn three_servers_form_a_quorum_with_one_leader() {
    let ensemble = start(Config::default());
    let leader = ensemble.leader().expect("a leader");
    assert_eq!(ensemble.followers().len(), 2);
    assert_eq!(ensemble.mode(leader), Mode::Leader);
    assert_eq!(ensemble.synced_followers(leader), Some(2));
}
