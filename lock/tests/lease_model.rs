//! A model of how ZooKeeper counts a session, finer than the fake ensemble: threads of the servers
//! that are paused together and apart, links that are late and cut, pings that carry touches. It
//! runs the lease rules of docs/safety.md on many random histories and looks for the one thing that
//! must not be: a client that still acts when the leader has ended its session.
//!
//! `LOCKKEEPER_SEED=n` repeats one history and prints its plan; `LOCKKEEPER_HISTORIES=n` runs more.

#[path = "lease_model/client.rs"]
mod client;
#[path = "lease_model/network.rs"]
mod network;
#[path = "lease_model/plan.rs"]
mod plan;
#[path = "lease_model/rules.rs"]
mod rules;
#[path = "lease_model/server.rs"]
mod server;
#[path = "lease_model/table.rs"]
mod table;
#[path = "lease_model/world.rs"]
mod world;

use network::{MS, Time};
use plan::{Fault, Paused, Plan, Profile, Which};
use table::{SLACK_NANOS, Table};

/// Histories for each test that looks for a rare overlap.
const MANY: u32 = 12_000;

/// A number from the environment.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
    )
}

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
    for rule in [rules::LEASE, rules::WHOLE] {
        assert_eq!(table.overlaps(rule), 0, "{}", table.repeat(rule));
    }
    if seed.is_none() {
        // A model in which nothing fails would show nothing.
        assert!(table.expired > table.histories / 10 * 9, "{table}");
        assert!(table.overlaps(rules::ONE_STEP) > 0, "{table}");
        assert!(table.overlaps(rules::TWO_STEP) > 0, "{table}");
    }
}

#[test]
fn the_two_step_rule_fails_when_a_follower_is_cut_off_just_after_a_pause() {
    let table = Table::run(&[Profile::PauseThenCut], 0, 4_000, |plan| {
        // One pause of the client's follower as a whole, then the cut.
        let (at, _) = plan.faults[0];
        let length = plan.last.0 - at;
        plan.faults = vec![(
            at,
            Fault::Pause {
                which: Which::Mine,
                paused: Paused::Process,
                length,
            },
        )];
        plan.last.0 = at + length + length % (10 * MS);
    });
    println!("{table}");
    assert!(table.overlaps(rules::TWO_STEP) > 0, "{table}");
    assert_eq!(table.overlaps(rules::LEASE), 0, "{}", table.repeat(rules::LEASE));
}

/// The model is able to see what `rule` has lost, in histories of `profile`, and nothing else is
/// wrong there.
fn overlaps_without_a_part(rule: usize, profile: Profile) {
    let table = Table::run(&[profile], 0, MANY, |_| {});
    println!("{table}");
    assert!(table.overlaps(rule) > 0, "{}", table.repeat(rule));
    assert_eq!(table.overlaps(rules::WHOLE), 0, "{}", table.repeat(rules::WHOLE));
}

#[test]
fn without_slack_a_late_ping_lets_two_hold() {
    overlaps_without_a_part(rules::NO_SLACK, Profile::EarlyWitness);
}

#[test]
fn without_half_a_tick_between_two_renewals_two_hold() {
    overlaps_without_a_part(rules::NO_AGE, Profile::Storm);
}

#[test]
fn a_last_renewal_sent_before_the_witness_was_answered_lets_two_hold() {
    overlaps_without_a_part(rules::NO_ORDER, Profile::PauseThenCut);
}

#[test]
fn a_lease_counted_from_the_answer_lets_two_hold() {
    overlaps_without_a_part(rules::FROM_ACKNOWLEDGEMENT, Profile::LateAnswer);
}

#[test]
fn a_reconnection_without_an_acknowledged_write_lets_two_hold() {
    overlaps_without_a_part(rules::ATTACHED_ALONE, Profile::NewLeader);
}

#[test]
fn a_lapsed_lease_that_one_write_makes_good_again_lets_two_hold() {
    overlaps_without_a_part(rules::UNCONFIRMED, Profile::Lapsed);
}

#[test]
fn a_second_write_sent_at_once_does_not_show_that_the_session_lives_on() {
    overlaps_without_a_part(rules::CONFIRMED_AT_ONCE, Profile::Lapsed);
}

/// What the rule takes for granted, taken away: that must show, or the model would not test it.
fn overlaps_when(profile: Profile, change: impl Fn(&mut Plan)) -> Table {
    let table = Table::run(&[profile], 0, MANY, change);
    println!("{table}");
    assert!(table.overlaps(rules::LEASE) > 0, "{table}");
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
        // The four renewals of a proof as close together as the rule allows.
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

/// The leader is paused as a whole, from before a ping is due until after the witness was sent.
/// When it wakes, its ping loop runs `lag` after everything else.
fn leader_wakes(plan: &mut Plan, lag: Time) {
    plan.ping_lag = lag;
    plan.ping_late = 0.0;
    plan.rhythm[1] = plan.tick / 2 + SLACK_NANOS + plan.rhythm[1] % (10 * MS);
    let length = plan.tick / 2 + plan.phase % (plan.tick / 2);
    plan.faults = vec![(
        plan.last.0 - length,
        Fault::Pause {
            which: Which::Leader,
            paused: Paused::Process,
            length,
        },
    )];
}

#[test]
fn a_leader_that_commits_before_it_pings_when_it_wakes_breaks_three_steps_but_not_four() {
    let table = Table::run(&[Profile::EarlyWitness], 0, MANY, |plan| {
        leader_wakes(plan, 20 * MS)
    });
    println!("{table}");
    assert!(table.overlaps(rules::THREE_STEP) > 0, "{table}");
    for rule in [rules::LEASE, rules::WHOLE] {
        assert_eq!(table.overlaps(rule), 0, "{}", table.repeat(rule));
    }
    // The commit of the witness takes a round trip from the leader to a follower and back: where
    // the ping loop runs in this time, three steps are enough.
    let table = Table::run(&[Profile::EarlyWitness], 0, MANY, |plan| leader_wakes(plan, 0));
    assert_eq!(
        table.overlaps(rules::THREE_STEP),
        0,
        "{}",
        table.repeat(rules::THREE_STEP)
    );
}
