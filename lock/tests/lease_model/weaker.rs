//! The library's lease compared with weaker ones: shows the purpose of each step and each part of its rule.
//!
//! All of them get the same history of the model:
//! * the rules with fewer steps: the last acknowledged write, two steps, three steps;
//! * the library's own lease, and a second version of its rule in the plainest form;
//! * rules from which one part was removed.
//!
//! The tests show that no history lets the library's lease outlive its session. They also show for each weaker rule a
//! history in which its lease does. So every part of the rule is necessary (docs/safety.md, "Why four" and "Why not
//! three, two, or one"). `e2e/campaign/src/control.rs` measures the cost of the weaker rules on real servers.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, Lease, Renewal};

use super::network::{MS, Time};
use super::plan::{Fault, Paused, Plan, Profile, RATE_ERROR, Which};
use super::table::{SLACK_NANOS, Table};

/// The moment of a proven renewal from which the lease is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CountedFrom {
    Sent,
    Acknowledged,
}

/// The event that makes the connection itself a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// The first write that is acknowledged over it.
    WithWrite,
    /// Its confirmation by the server, without a write.
    Alone,
}

/// The three- and the four-step rule, as a second version in the plainest form, in which every part can be exchanged.
/// Unlike [`Lease`] it forgets nothing.
pub struct Steps {
    pub age: Duration,
    pub ordered: bool,
    pub from: CountedFrom,
    pub attached: Attached,
    /// Between a renewal and its witness there is another one, answered this long before the witness was sent. A leader
    /// that was paused when the one between was sent has been running since. The three-step rule does not require it.
    pub rest: Option<Duration>,
    /// A lease that has lapsed needs a later write, sent this long after the acknowledgement of the one that would have
    /// extended it.
    pub confirmed_after: Option<Duration>,
    asked: Option<BootInstant>,
    seen: Vec<Renewal>,
    /// The moment from which the lease would be counted, and the moment at which that was acknowledged.
    unconfirmed: Option<(BootInstant, BootInstant)>,
}

impl Steps {
    pub fn whole(age: Duration, slack: Duration) -> Self {
        Self {
            age,
            ordered: true,
            from: CountedFrom::Sent,
            attached: Attached::WithWrite,
            rest: Some(slack),
            confirmed_after: Some(slack),
            asked: None,
            seen: Vec::new(),
            unconfirmed: None,
        }
    }

    /// The moment from which the lease may be counted; `is_good` is whether it had not lapsed by then.
    fn acknowledge(&mut self, last: Renewal, is_good: bool) -> Option<BootInstant> {
        let counted = self.counted(last);
        let Some(after) = self.confirmed_after.filter(|_| !is_good) else {
            return counted;
        };
        let confirmed = self.unconfirmed.take_if(|(_, at)| *at + after <= last.sent);
        if let Some(counted) = counted {
            self.unconfirmed.get_or_insert((counted, last.acknowledged));
        }
        confirmed.map(|(counted, _)| counted)
    }

    fn counted(&mut self, last: Renewal) -> Option<BootInstant> {
        // Writes are sent and answered in order, so the newest witness is the best one.
        let witness = self
            .seen
            .iter()
            .rev()
            .find(|witness| !self.ordered || witness.acknowledged <= last.sent);
        let between = |witness: &&Renewal| match self.rest {
            None => Some(**witness),
            Some(rest) => {
                let mut seen = self.seen.iter().rev();
                seen.find(|between| between.acknowledged + rest <= witness.sent)
                    .copied()
            }
        };
        let proven = witness.as_ref().and_then(between).and_then(|witness| {
            let mut seen = self.seen.iter().rev();
            seen.find(|renewal| renewal.acknowledged + self.age <= witness.sent)
        });
        let proven = proven.map(|renewal| match self.from {
            CountedFrom::Sent => renewal.sent,
            CountedFrom::Acknowledged => renewal.acknowledged,
        });
        self.seen.push(last);
        proven.max(self.asked.take())
    }
}

enum Kind {
    /// The last acknowledged write.
    OneStep,
    /// A write, when one sent `age` later is acknowledged.
    TwoStep {
        age: Duration,
        seen: Vec<Renewal>,
        asked: Option<BootInstant>,
    },
    Steps(Steps),
    /// The lease of the lock.
    Lease(Lease),
}

/// One rule in one history.
pub struct Rule {
    session_timeout: Duration,
    kind: Kind,
    end: Option<BootInstant>,
    created_until: Option<BootInstant>,
}

/// The rules of the table, by name.
pub const NAMES: [&str; COUNT] = [
    "last acknowledged write + T",
    "two-step, no slack",
    "two-step",
    "three-step",
    "four-step: Lease",
    "four-step, forgets nothing",
    "three-step without slack",
    "three-step without k_j <= s_n",
    "three-step without tick/2 + slack",
    "three-step from acknowledgement",
    "connection counts without write",
    "lapsed lease without second write",
    "second write without slack",
];

pub const COUNT: usize = 13;
pub const ONE_STEP: usize = 0;
pub const TWO_STEP: usize = 2;
pub const THREE_STEP: usize = 3;
pub const LEASE: usize = 4;
pub const WHOLE: usize = 5;
pub const NO_SLACK: usize = 6;
pub const NO_ORDER: usize = 7;
pub const NO_AGE: usize = 8;
pub const FROM_ACKNOWLEDGEMENT: usize = 9;
pub const ATTACHED_ALONE: usize = 10;
pub const UNCONFIRMED: usize = 11;
pub const CONFIRMED_AT_ONCE: usize = 12;

/// All rules for one history.
pub fn all(session_timeout: Duration, tick: Duration, slack: Duration) -> [Rule; COUNT] {
    let age = tick / 2 + slack;
    let two_step = |age| Kind::TwoStep {
        age,
        seen: Vec::new(),
        asked: None,
    };
    let four = || Steps::whole(age, slack);
    // Parts are removed from three steps: in most histories the fourth step compensates for the missing part, which is
    // welcome, but hides the purpose of each part.
    let three = || Steps { rest: None, ..four() };
    [
        Kind::OneStep,
        two_step(tick / 2),
        two_step(age),
        Kind::Steps(three()),
        Kind::Lease(Lease::new(session_timeout, tick)),
        Kind::Steps(four()),
        Kind::Steps(Steps {
            age: tick / 2,
            ..three()
        }),
        Kind::Steps(Steps {
            ordered: false,
            ..three()
        }),
        Kind::Steps(Steps {
            age: Duration::ZERO,
            ..three()
        }),
        Kind::Steps(Steps {
            from: CountedFrom::Acknowledged,
            ..three()
        }),
        Kind::Steps(Steps {
            attached: Attached::Alone,
            ..four()
        }),
        Kind::Steps(Steps {
            confirmed_after: None,
            ..four()
        }),
        Kind::Steps(Steps {
            confirmed_after: Some(Duration::ZERO),
            ..four()
        }),
    ]
    .map(|kind| Rule {
        session_timeout,
        kind,
        end: None,
        created_until: None,
    })
}

impl Rule {
    /// The session was created by a request that was sent at `asked`.
    pub fn create(&mut self, asked: BootInstant) {
        self.created_until = Some(asked + self.session_timeout);
        if let Kind::Lease(lease) = &mut self.kind {
            lease.create(asked, self.session_timeout);
        }
    }

    /// The same session is confirmed over a connection that was requested at `asked`.
    pub fn attach(&mut self, at: BootInstant) {
        match &mut self.kind {
            Kind::OneStep => {}
            Kind::TwoStep { seen, asked, .. } => {
                seen.clear();
                *asked = Some(at);
            }
            Kind::Steps(rule) => {
                rule.seen.clear();
                rule.unconfirmed = None;
                match rule.attached {
                    Attached::WithWrite => rule.asked = Some(at),
                    Attached::Alone => self.end = self.end.max(Some(at + self.session_timeout)),
                }
            }
            Kind::Lease(lease) => lease.attach(at, self.session_timeout),
        }
    }

    /// Takes an acknowledged renewal into account and returns the end of the lease.
    pub fn acknowledge(&mut self, renewal: Renewal) -> Option<BootInstant> {
        // The client's clock may be the slower one.
        let rate_error = self.session_timeout.mul_f64(RATE_ERROR);
        let until = self.end.max(self.created_until);
        let is_good = until.is_some_and(|until| renewal.acknowledged + rate_error < until);
        let proven = match &mut self.kind {
            Kind::OneStep => Some(renewal.sent),
            Kind::TwoStep { age, seen, asked } => {
                let proven = seen
                    .iter()
                    .rev()
                    .find(|earlier| earlier.sent + *age <= renewal.sent)
                    .map(|earlier| earlier.sent);
                seen.push(renewal);
                proven.max(asked.take())
            }
            Kind::Steps(rule) => rule.acknowledge(renewal, is_good),
            Kind::Lease(lease) => return lease.acknowledge(renewal),
        };
        self.end = self.end.max(proven.map(|from| from + self.session_timeout));
        self.end
    }

    pub fn end(&self) -> Option<BootInstant> {
        match &self.kind {
            Kind::Lease(lease) => lease.end(),
            _ => self.end,
        }
    }
}

#[test]
fn the_two_step_rule_fails_when_a_follower_is_cut_off_just_after_a_pause() {
    let table = Table::search(TWO_STEP, Profile::PauseThenCut, |plan| {
        // One pause of the whole follower of the client, then the cut.
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
    assert!(table.overlaps(TWO_STEP) > 0, "{table}");
    assert_eq!(table.overlaps(LEASE), 0, "{}", table.repeat(LEASE));
}

/// Checks that the model can show what `rule` has lost, in histories of `profile`, and that nothing else is wrong
/// there.
fn overlaps_without_a_part(rule: usize, profile: Profile) {
    let table = Table::search(rule, profile, |_| {});
    assert!(table.overlaps(rule) > 0, "{}", table.repeat(rule));
    assert_eq!(table.overlaps(WHOLE), 0, "{}", table.repeat(WHOLE));
}

#[test]
fn without_slack_a_late_ping_lets_two_hold() {
    overlaps_without_a_part(NO_SLACK, Profile::EarlyWitness);
}

#[test]
fn without_half_a_tick_between_two_renewals_two_hold() {
    overlaps_without_a_part(NO_AGE, Profile::Storm);
}

#[test]
fn a_last_renewal_sent_before_the_witness_was_answered_lets_two_hold() {
    overlaps_without_a_part(NO_ORDER, Profile::PauseThenCut);
}

#[test]
fn a_lease_counted_from_the_answer_lets_two_hold() {
    overlaps_without_a_part(FROM_ACKNOWLEDGEMENT, Profile::LateAnswer);
}

#[test]
fn a_reconnection_without_an_acknowledged_write_lets_two_hold() {
    overlaps_without_a_part(ATTACHED_ALONE, Profile::NewLeader);
}

#[test]
fn a_lapsed_lease_that_one_write_makes_good_again_lets_two_hold() {
    overlaps_without_a_part(UNCONFIRMED, Profile::Lapsed);
}

#[test]
fn a_second_write_sent_at_once_does_not_show_that_the_session_lives_on() {
    overlaps_without_a_part(CONFIRMED_AT_ONCE, Profile::Lapsed);
}

/// The whole leader is paused, from before a ping is due until after the witness was sent. When it wakes, its ping loop
/// runs `lag` after everything else.
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
    let table = Table::search(THREE_STEP, Profile::EarlyWitness, |plan| {
        leader_wakes(plan, 20 * MS)
    });
    assert!(table.overlaps(THREE_STEP) > 0, "{table}");
    for rule in [LEASE, WHOLE] {
        assert_eq!(table.overlaps(rule), 0, "{}", table.repeat(rule));
    }
    // The commit of the witness takes a round trip from the leader to a follower and back: if the ping loop runs in
    // this time, three steps are enough.
    let table = Table::search(THREE_STEP, Profile::EarlyWitness, |plan| leader_wakes(plan, 0));
    assert_eq!(table.overlaps(THREE_STEP), 0, "{}", table.repeat(THREE_STEP));
}
