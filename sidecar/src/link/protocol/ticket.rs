//! A ticket in two frames, which are the same in both directions: the keeper tells it to the guard, and the guard tells it
//! to the next keeper.

use std::time::Duration;

use lockkeeper_lock::{FencingToken, SESSION_PASSWORD_LEN, SessionKey, Ticket};
use uuid::Uuid;

use super::frame::Fields;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketHalf {
    /// The session: the first half.
    Session {
        key: SessionKey,
        /// The shortest timeout that a server has granted to it, in milliseconds.
        timeout: u32,
    },
    /// The contender: the second half.
    Contender {
        /// The unique part of its name.
        unique: Uuid,
        token: FencingToken,
        /// L in milliseconds; 0 if it states none.
        lease: u32,
    },
}

/// What a guard keeps for the next keeper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    session: Option<(SessionKey, Duration)>,
    ticket: Option<Ticket>,
}

impl TicketHalf {
    /// Both halves, in their order; `None` if a time has more milliseconds than a frame has room for (49 days).
    pub(crate) fn both(ticket: &Ticket) -> Option<[Self; 2]> {
        let millis = |time: Duration| u32::try_from(time.as_millis()).ok();
        let session = Self::Session {
            key: ticket.session,
            timeout: millis(ticket.session_timeout)?,
        };
        let contender = Self::Contender {
            unique: ticket.contender,
            token: ticket.token,
            lease: ticket.lease.map_or(Some(0), millis)?,
        };
        Some([session, contender])
    }

    /// The fields of its frame, as one of these two kinds.
    pub(super) fn fields(&self, session: u8, contender: u8) -> Fields {
        let (kind, token, argument, bytes) = match *self {
            Self::Session { key, timeout } => (session, key.id, timeout, key.password),
            Self::Contender { unique, token, lease } => (contender, token.0, lease, unique.into_bytes()),
        };
        let bytes = u128::from_le_bytes(bytes);
        Fields {
            kind,
            argument,
            token,
            first: bytes as u64,
            second: (bytes >> 64) as u64,
            ..Fields::default()
        }
    }

    pub(super) fn session(fields: &Fields) -> Self {
        Self::Session {
            key: SessionKey {
                id: fields.token,
                password: bytes(fields),
            },
            timeout: fields.argument,
        }
    }

    pub(super) fn contender(fields: &Fields) -> Self {
        Self::Contender {
            unique: Uuid::from_bytes(bytes(fields)),
            token: FencingToken(fields.token),
            lease: fields.argument,
        }
    }
}

fn bytes(fields: &Fields) -> [u8; SESSION_PASSWORD_LEN] {
    (u128::from(fields.first) | u128::from(fields.second) << 64).to_le_bytes()
}

impl Kept {
    /// Takes a half of a ticket. A session begins another one.
    pub(crate) fn take(&mut self, half: TicketHalf) {
        match half {
            TicketHalf::Session { key, timeout } => {
                self.session = Some((key, Duration::from_millis(timeout.into())));
                self.ticket = None;
            }
            TicketHalf::Contender { unique, token, lease } => {
                self.ticket = self.session.map(|(session, session_timeout)| Ticket {
                    session,
                    session_timeout,
                    contender: unique,
                    token,
                    lease: (lease > 0).then(|| Duration::from_millis(lease.into())),
                });
            }
        }
    }

    /// The ticket, once both halves are there.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }

    pub(crate) fn halves(&self) -> Option<[TicketHalf; 2]> {
        TicketHalf::both(&self.ticket?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: Ticket = Ticket {
        session: SessionKey {
            id: -7,
            password: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 255],
        },
        session_timeout: Duration::from_millis(15_000),
        contender: Uuid::from_u128(0x1234_5678_9abc_def0_1234_5678_9abc_def1),
        token: FencingToken(9),
        lease: None,
    };

    #[test]
    fn a_ticket_is_kept_when_both_halves_are_there_and_until_the_next_one() {
        for lease in [None, Some(Duration::from_millis(1_500))] {
            let ticket = Ticket { lease, ..TICKET };
            let [session, contender] = TicketHalf::both(&ticket).expect("it fits");
            let mut kept = Kept::default();
            kept.take(contender);
            assert_eq!(kept.ticket(), None, "of no session");
            kept.take(session);
            assert_eq!(kept.ticket(), None);
            kept.take(contender);
            assert_eq!(kept.ticket(), Some(ticket));
            assert_eq!(kept.halves(), Some([session, contender]));
            kept.take(session);
            assert_eq!(kept.ticket(), None, "the next one has begun");
        }
    }

    #[test]
    fn a_ticket_whose_times_have_no_room_is_not_given() {
        let long = Duration::from_secs(60 * 24 * 3_600);
        let of_session = Ticket {
            session_timeout: long,
            ..TICKET
        };
        assert_eq!(TicketHalf::both(&of_session), None);
        let of_lease = Ticket {
            lease: Some(long),
            ..TICKET
        };
        assert_eq!(TicketHalf::both(&of_lease), None);
    }
}
