//! The rules that are compared: three that were on the table, and the last of them with a part
//! taken away each.

use std::time::Duration;

use lockkeeper_lock::{BootInstant, Lease, Renewal};

use super::plan::RATE_ERROR;

/// From which moment of a proven renewal the lease is counted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum CountedFrom {
    Sent,
    Acknowledged,
}

/// What makes the connection itself a proof.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Attached {
    /// The first write that is acknowledged over it.
    WithWrite,
    /// Its confirmation by the server alone.
    Alone,
}

/// The three- and the four-step rule, written down a second time in the plainest way and with every part
/// exchangeable. Unlike [`Lease`] it forgets nothing.
pub struct Steps {
    pub age: Duration,
    pub ordered: bool,
    pub from: CountedFrom,
    pub attached: Attached,
    /// Between a renewal and its witness lies another one, answered this long before the witness was
    /// sent. A leader that was paused when the one between was sent has been running since. The
    /// three-step rule lacks it.
    pub rest: Option<Duration>,
    /// A lease that has lapsed needs a later write, sent this long after the one that would have extended
    /// it was acknowledged.
    pub confirmed_after: Option<Duration>,
    asked: Option<BootInstant>,
    seen: Vec<Renewal>,
    /// From when on the lease would be counted, and when that was acknowledged.
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

    /// From when on the lease may be counted; `is_good` is whether it had not lapsed by then.
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
    /// What the lock uses.
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
    // Parts are taken away from three steps: the fourth covers for most of them in most histories,
    // which is welcome, but hides what each of them is for.
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

    /// The same session is confirmed over a connection that was asked for at `asked`.
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

    /// The end of the lease.
    pub fn end(&self) -> Option<BootInstant> {
        match &self.kind {
            Kind::Lease(lease) => lease.end(),
            _ => self.end,
        }
    }
}
