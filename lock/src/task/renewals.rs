//! When our contender has to renew, and until when nobody can have taken its place.

use std::time::Duration;

use crate::clock::BootInstant;
use crate::takeover_lease::TakeoverLease;

pub(super) struct Renewals {
    /// `None` if only the session decides.
    lease: Option<OwnLease>,
    /// When the last renewal was sent, or when the contender was found.
    last: BootInstant,
    /// Whether our lease was made to last until renewals extend it. A waiter further back does not renew, so little of
    /// its lease may be left when its turn comes.
    is_regular: bool,
}

struct OwnLease {
    lease: TakeoverLease,
    /// Whether our data may state L. From then on we have to renew by changing them.
    is_stated: bool,
}

impl Renewals {
    /// Of a contender that waits: its data do not state L yet.
    pub(super) fn of_waiter(lease: Option<Duration>, now: BootInstant) -> Self {
        Self {
            lease: lease.map(|lease| OwnLease {
                lease: TakeoverLease::new(lease),
                is_stated: false,
            }),
            last: now,
            is_regular: false,
        }
    }

    /// The data of our contender, which another process has left to us, may state this L. Later writes state it as well,
    /// whatever our own times are: until they are acknowledged it may be replaced after this silence.
    pub(super) fn go_on(&mut self, lease: Option<Duration>) {
        self.lease = lease.map(|lease| OwnLease {
            lease: TakeoverLease::new(lease),
            is_stated: true,
        });
    }

    /// The lease duration L; `None` without one.
    pub(super) fn lease(&self) -> Option<Duration> {
        Some(self.lease.as_ref()?.lease.duration())
    }

    pub(super) fn states_lease(&self) -> bool {
        self.lease.as_ref().is_some_and(|own| own.is_stated)
    }

    /// L, which our data state from now on.
    pub(super) fn state_lease(&mut self) -> Option<Duration> {
        if let Some(own) = &mut self.lease {
            own.is_stated = true;
        }
        self.lease()
    }

    /// When the takeover lease ends for us.
    pub(super) fn deadline(&self) -> Option<BootInstant> {
        self.lease.as_ref()?.lease.deadline()
    }

    /// The earlier one of both deadlines; `None` before the first renewal.
    pub(super) fn earlier_deadline(&self, of_session: BootInstant) -> Option<BootInstant> {
        match &self.lease {
            Some(_) => Some(self.deadline()?.min(of_session)),
            None => Some(of_session),
        }
    }

    /// Whether nobody can have taken our place at `moment`.
    pub(super) fn is_safe(&self, moment: BootInstant) -> bool {
        self.lease.as_ref().is_none_or(|own| own.lease.is_valid(moment))
    }

    /// A write to our node that was sent at `sent` was acknowledged.
    pub(super) fn acknowledged(&mut self, sent: BootInstant) {
        if let Some(own) = &mut self.lease {
            own.lease.renew(sent);
        }
    }

    pub(super) fn last(&self) -> BootInstant {
        self.last
    }

    /// A renewal was sent.
    pub(super) fn sent(&mut self, sent: BootInstant) {
        self.last = sent;
    }

    /// We renew from now on. Returns whether we did so before.
    pub(super) fn begin(&mut self) -> bool {
        std::mem::replace(&mut self.is_regular, true)
    }
}
