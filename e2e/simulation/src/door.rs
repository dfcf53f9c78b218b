//! The rule for which guard the keeper accepts: that of `sidecar/src/link/keeper_end/listener.rs`, without
//! its sockets.

use lockkeeper_sidecar::link::protocol::Hello;

/// A process that connects. Process numbers are never reused here.
pub(crate) type Peer = u64;

/// The guard that was accepted last.
#[derive(Debug)]
struct Known {
    instance: u64,
    is_first: bool,
    /// `None` if the kernel does not report the end of the process (`SO_PEERPIDFD`), and once it has reported it.
    process: Option<Peer>,
    /// The kernel has reported its end.
    has_ended: bool,
}

/// The verdict on a connection after its hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newcomer {
    /// The same guard, again.
    Same,
    /// A guard in place of the one before.
    Next {
        /// There is no proof that all processes of the previous guard are gone.
        is_in_doubt: bool,
    },
    Refused,
}

#[derive(Debug)]
pub(crate) struct Door {
    /// The weak rule: a newcomer replaces the previous guard, and is believed.
    newest_wins: bool,
    known: Option<Known>,
}

impl Door {
    pub(crate) fn new(newest_wins: bool) -> Self {
        Self {
            newest_wins,
            known: None,
        }
    }

    /// The process whose end the keeper waits for.
    pub(crate) fn watched(&self) -> Option<Peer> {
        self.known.as_ref()?.process
    }

    /// The watched process has ended. True if everything that it started has ended too.
    pub(crate) fn ended(&mut self) -> bool {
        self.known.as_mut().is_some_and(|known| {
            known.process = None;
            known.has_ended = true;
            known.is_first
        })
    }

    /// A connection of the process `peer` (if the kernel names it) has sent `Hello`; `lives` says whether a
    /// process still runs.
    pub(crate) fn greet(
        &mut self,
        peer: Option<Peer>,
        hello: &Hello,
        is_connected: bool,
        lives: impl Fn(Peer) -> bool,
    ) -> Newcomer {
        let is_in_doubt = match &self.known {
            None => false,
            Some(_) if self.newest_wins => false,
            Some(known) => {
                let is_alive = known.process.map(lives);
                let has_ended = known.has_ended || is_alive == Some(false);
                if !has_ended && known.instance == hello.instance {
                    return Newcomer::Same;
                }
                let is_taken = is_alive.unwrap_or(is_connected);
                if is_taken {
                    return Newcomer::Refused;
                }
                !(has_ended && known.is_first)
            }
        };
        self.known = Some(Known {
            instance: hello.instance,
            is_first: hello.is_first,
            process: peer,
            has_ended: false,
        });
        Newcomer::Next { is_in_doubt }
    }
}

#[cfg(test)]
mod tests {
    use lockkeeper_sidecar::link::protocol::Containment;

    use super::*;

    fn hello(instance: u64) -> Hello {
        Hello {
            pid: 1,
            instance,
            is_first: true,
            has_ticket: false,
            tree: None,
            containment: Containment::Sweep,
            clock: 0,
        }
    }

    #[test]
    fn a_guard_that_lives_keeps_its_place_also_while_it_is_not_connected() {
        let mut door = Door::new(false);
        let next = Newcomer::Next { is_in_doubt: false };
        assert_eq!(door.greet(Some(1), &hello(1), false, |_| true), next);
        assert_eq!(door.greet(Some(2), &hello(2), true, |_| true), Newcomer::Refused);
        assert_eq!(door.greet(Some(2), &hello(2), false, |_| true), Newcomer::Refused);
        assert_eq!(door.greet(Some(1), &hello(1), false, |_| true), Newcomer::Same);
        assert_eq!(door.greet(Some(2), &hello(2), false, |_| false), next);
    }

    #[test]
    fn where_no_end_is_told_a_successor_leaves_a_doubt() {
        let mut door = Door::new(false);
        door.greet(None, &hello(1), false, |_| true);
        assert_eq!(door.greet(None, &hello(2), true, |_| true), Newcomer::Refused);
        let doubt = Newcomer::Next { is_in_doubt: true };
        assert_eq!(door.greet(None, &hello(2), false, |_| true), doubt);
    }
}
