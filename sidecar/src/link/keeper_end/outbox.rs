//! Frames that the guard's socket has not taken yet.

use std::collections::VecDeque;

use crate::link::protocol::{Frame, TicketHalf, ToGuard};

/// What the guard has not been sent yet, the oldest frame first.
///
/// A guard that is stopped reads nothing, and some hundred frames later its socket is full. The keeper does not wait for
/// such a guard: it is the one that [kills](crate::link::keeper_end::KeeperEnd::kill) it after its deadline. A frame that
/// a later one makes worthless is dropped, so no more than a dozen are here, however long the guard reads nothing.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<ToGuard>,
    /// The frame that is being sent, and how many of its bytes were.
    begun: Option<(Frame, usize)>,
}

impl Outbox {
    /// Adds a frame at the end.
    pub(super) fn push(&mut self, frame: ToGuard) {
        self.frames.retain(|earlier| !makes_worthless(&frame, earlier));
        self.frames.push_back(frame);
    }

    /// The bytes to send next.
    pub(super) fn bytes(&mut self) -> Option<&[u8]> {
        if self.begun.is_none() {
            self.begun = self.frames.pop_front().map(|frame| (frame.encode(), 0));
        }
        self.begun.as_ref().map(|(frame, sent)| &frame[*sent..])
    }

    /// The socket has taken this many of them.
    pub(super) fn took(&mut self, count: usize) {
        if let Some((frame, sent)) = &mut self.begun {
            *sent += count;
            if *sent >= frame.len() {
                self.begun = None;
            }
        }
    }

    /// The connection is over.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether a guard that gets `later` needs `earlier` no more.
fn makes_worthless(later: &ToGuard, earlier: &ToGuard) -> bool {
    match (later, earlier) {
        // The newest grant counts, and a frame that starts something is no mere renewal.
        (ToGuard::Grant(_), ToGuard::Grant(earlier)) => !earlier.start,
        (
            ToGuard::Suspect { .. } | ToGuard::Confirm { .. },
            ToGuard::Suspect { .. } | ToGuard::Confirm { .. },
        )
        | (ToGuard::Forget, ToGuard::Keep(_) | ToGuard::Forget) => true,
        // The half that comes first begins another ticket.
        (ToGuard::Keep(TicketHalf::Session { .. }), ToGuard::Keep(_)) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_lock::{BootInstant, FencingToken};

    use super::*;
    use crate::link::protocol::{FRAME_LEN, Grant};

    const A: FencingToken = FencingToken(5);

    fn grant(generation: u32, start: bool) -> ToGuard {
        ToGuard::Grant(Grant {
            token: A,
            generation,
            start,
            pause: false,
            term_at: BootInstant::from_nanos(generation.into()),
            kill_at: BootInstant::from_nanos(generation.into()),
        })
    }

    fn rest(outbox: &mut Outbox) -> Vec<ToGuard> {
        let mut rest = Vec::new();
        while let Some(bytes) = outbox.bytes() {
            rest.push(ToGuard::decode(&bytes.try_into().expect("a whole frame")).expect("a frame"));
            outbox.took(FRAME_LEN);
        }
        rest
    }

    #[test]
    fn of_many_renewals_a_guard_that_reads_again_gets_the_newest_one_and_every_order_in_its_place() {
        let stop = ToGuard::Stop {
            token: A,
            kill_at: BootInstant::from_nanos(9),
        };
        let mut outbox = Outbox::default();
        outbox.push(grant(1, true));
        (2..500).for_each(|generation| outbox.push(grant(generation, false)));
        outbox.push(stop);
        outbox.push(grant(500, false));
        assert_eq!(rest(&mut outbox), [grant(1, true), stop, grant(500, false)]);
    }

    #[test]
    fn of_doubts_and_their_ends_the_newest_counts() {
        let (suspect, confirm) = (ToGuard::Suspect { token: A }, ToGuard::Confirm { token: A });
        let mut outbox = Outbox::default();
        for _ in 0..100 {
            outbox.push(suspect);
            outbox.push(grant(1, false));
            outbox.push(confirm);
        }
        assert_eq!(rest(&mut outbox), [grant(1, false), confirm]);
    }

    #[test]
    fn a_frame_that_was_sent_in_part_is_sent_to_its_end_whatever_follows() {
        let mut outbox = Outbox::default();
        outbox.push(grant(1, false));
        let mut bytes = outbox.bytes().expect("a frame")[..13].to_vec();
        outbox.took(13);
        outbox.push(grant(2, false));
        bytes.extend_from_slice(outbox.bytes().expect("the rest of it"));
        outbox.took(FRAME_LEN - 13);
        assert_eq!(bytes, grant(1, false).encode());
        assert_eq!(rest(&mut outbox), [grant(2, false)]);
    }
}
