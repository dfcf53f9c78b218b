//! The promises under one kind of fault each, on real servers and real processes: a few rounds of the trials
//! that `lockkeeper-campaign` runs for hours. LOCKKEEPER_SEED repeats the choices.

use std::sync::{Mutex, PoisonError};

use lockkeeper_campaign::trials::as_test;

/// Two ensembles at a time are too much for a small machine, and leases are short.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn trial(name: &str, rounds: u32) {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    as_test(name, rounds);
}

#[test]
fn the_child_is_gone_before_the_lock_when_its_only_server_is_cut_off_from_the_leader() {
    trial("cut", 2);
}

#[test]
fn the_child_is_gone_before_the_lock_when_its_server_is_cut_off_right_after_a_pause() {
    trial("cut-after-follower-pause", 2);
}

#[test]
fn the_child_is_gone_before_the_lock_when_its_server_is_cut_off_right_after_a_pause_of_the_leader() {
    trial("cut-after-leader-pause", 2);
}

#[test]
fn a_holder_that_knows_all_servers_takes_its_session_to_another_one() {
    trial("moved", 3);
}

#[test]
fn the_child_is_gone_before_the_lock_when_the_keeper_is_killed_or_stopped_or_starved() {
    trial("keeper", 1);
}

#[test]
fn the_child_and_its_orphans_are_gone_before_the_lock_when_the_guard_is_killed() {
    trial("guard", 2);
}

#[test]
fn a_storm_of_forks_is_gone_at_the_deadline_in_a_control_group_and_in_a_namespace() {
    trial("storm", 2);
}

#[test]
fn a_child_whose_contender_is_deleted_by_hand_is_killed_without_grace() {
    trial("deleted", 3);
}

#[test]
fn workers_hold_again_without_help_after_any_number_of_servers_was_down() {
    trial("servers", 1);
}

#[test]
fn a_pod_or_command_that_waits_runs_soon_after_the_kernel_has_killed_a_container_with_its_guard() {
    trial("container", 1);
}

#[test]
fn nobody_runs_beside_a_holder_whose_ensemble_elects_a_new_leader() {
    trial("elections", 1);
}

#[test]
fn nobody_runs_beside_a_holder_on_a_machine_whose_processors_and_disk_are_busy() {
    trial("load", 4);
}

#[test]
fn curator_and_lockkeeper_take_turns_in_one_queue() {
    trial("curator", 1);
}

#[test]
fn kazoo_and_go_zookeeper_and_zookeepers_recipe_take_turns_with_lockkeeper_in_one_queue() {
    trial("other-clients", 1);
}

#[test]
fn a_kubelet_has_no_reason_to_restart_a_holder_under_a_flood_of_silent_connections() {
    trial("flood", 4);
}

#[test]
fn no_two_programs_overlap_under_random_faults() {
    trial("random", 1);
}

#[test]
fn the_campaign_plays_simulated_histories_too() {
    trial("simulation", 3);
}

// The trial `nodes` is a test beside the others on nodes: `e2e/tests/kubernetes/nodes.rs`.
