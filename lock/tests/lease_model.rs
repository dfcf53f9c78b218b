//! A model of how ZooKeeper counts a session, finer than the fake ensemble: threads of the servers that are paused
//! together and separately, links that are late and cut, pings that carry touches. It runs the lease rules of
//! docs/safety.md on many random histories and searches for the one forbidden event: a client still acts after the
//! leader has ended its session.
//!
//! `LOCKKEEPER_SEED=n` repeats one history and prints its plan; `LOCKKEEPER_HISTORIES=n` runs more.

#[path = "lease_model/client.rs"]
mod client;
#[path = "lease_model/model.rs"]
mod model;
#[path = "lease_model/network.rs"]
mod network;
#[path = "lease_model/plan.rs"]
mod plan;
#[path = "lease_model/server.rs"]
mod server;
#[path = "lease_model/table.rs"]
mod table;
#[path = "lease_model/weaker.rs"]
mod weaker;

use lockkeeper_fake::number;
use network::MS;
use plan::{Plan, Profile};
use table::{SLACK_NANOS, Table};

#[test]
fn no_history_lets_the_four_step_lease_outlive_the_session_and_simpler_rules_do() {
    let seed = number("LOCKKEEPER_SEED");
    let histories = match seed {
        Some(_) => Profile::ALL.len() as u64,
        None => number("LOCKKEEPER_HISTORIES").unwrap_or(14_000),
    };
    let table = Table::run(&Profile::ALL, seed.unwrap_or(0), histories as u32, |plan| {
        if seed.is_some() {
            println!("{plan:#?}");
        }
    });
    println!(
        "{} histories, {} with an expired session\n{table}",
        table.histories, table.expired
    );
    for rule in [weaker::LEASE, weaker::WHOLE] {
        assert_eq!(table.overlaps(rule), 0, "{}", table.repeat(rule));
    }
    if seed.is_none() {
        // A model without failures would prove nothing.
        assert!(table.expired > table.histories / 10 * 9, "{table}");
        assert!(table.overlaps(weaker::ONE_STEP) > 0, "{table}");
        assert!(table.overlaps(weaker::TWO_STEP) > 0, "{table}");
    }
}

/// Removes an assumption of the rule: there must be overlaps then, or the model would not test it.
fn overlaps_when(profile: Profile, change: impl Fn(&mut Plan)) -> Table {
    let table = Table::search(weaker::LEASE, profile, change);
    assert!(table.overlaps(weaker::LEASE) > 0, "{table}");
    table
}

#[test]
fn a_ping_loop_that_stalls_for_longer_than_the_slack_breaks_the_rule() {
    overlaps_when(Profile::EarlyWitness, |plan| plan.ping_jitter = 3 * plan.tick);
}

#[test]
fn an_expirer_that_marks_a_session_later_than_the_slack_breaks_the_rule() {
    overlaps_when(Profile::Lapsed, |plan| plan.mark_delay = plan.tick);
}

#[test]
fn touches_that_go_into_a_table_which_was_already_sent_break_the_rule() {
    overlaps_when(Profile::EarlyWitness, |plan| {
        plan.torn_touches = (0.5, 50 * MS);
        // The four renewals of a proof are as close together as the rule allows.
        plan.rhythm = vec![
            plan.rhythm[0],
            plan.tick / 2 + SLACK_NANOS + plan.tick / 50,
            SLACK_NANOS + plan.tick / 50,
            MS,
        ];
    });
}

#[test]
fn clocks_that_differ_by_more_than_one_per_cent_break_the_rule() {
    overlaps_when(Profile::LateAnswer, |plan| plan.clock_rate = 0.97);
}
