//! Every short sequence of events against a model of the tree.

use super::*;

/// A tree that does as it is told, and what it was allowed.
#[derive(Default)]
struct Tree {
    running: bool,
    exists: bool,
    token: Option<FencingToken>,
    /// The instants granted last for each token: SIGTERM and SIGKILL.
    allowed: [(u64, u64); 2],
}

impl Tree {
    fn obey(&mut self, schedule: &mut Schedule, event: Event, now: u64) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let resumed_by = match event {
                Event::Frame(ToGuard::Grant(grant)) => Some(grant.token),
                _ => self.token,
            };
            for action in schedule.handle(event, ms(now)).iter() {
                match action {
                    Action::Start(token) => {
                        assert!(now < self.allowed_to(token).0, "started too late");
                        assert!(!self.exists, "started beside another");
                        (self.running, self.exists, self.token) = (true, true, Some(token));
                    }
                    Action::Sweep(Sweep::Continue) => {
                        let by = resumed_by.expect("a token");
                        assert!(now < self.allowed_to(by).1, "resumed too late");
                        (self.running, self.token) = (self.exists, Some(by));
                    }
                    Action::Sweep(Sweep::Kill) => {
                        (self.running, self.exists, self.token) = (false, false, None);
                        next = Some(GONE);
                    }
                    Action::Sweep(Sweep::Stop) => {
                        self.running = false;
                        next = Some(if self.exists { STOPPED } else { GONE });
                    }
                    _ => {}
                }
            }
        }
        if let (true, Some(token)) = (self.running, self.token) {
            assert!(now < self.allowed_to(token).1, "runs beyond its deadline");
            let wake = schedule.wake_at().expect("a deadline to watch");
            assert!(
                wake <= ms(self.allowed_to(token).1),
                "would sleep beyond its deadline"
            );
        }
    }

    fn allowed_to(&mut self, token: FencingToken) -> &mut (u64, u64) {
        &mut self.allowed[usize::from(token == B)]
    }
}

/// Every sequence of five of these events, 2 s apart or at once, for every kind of guard.
#[test]
fn no_sequence_of_events_lets_anything_run_beyond_what_was_granted() {
    const CHOICES: u32 = 16;
    const LENGTH: u32 = 5;
    for (mode, reconnects) in [(Mode::Pid1, true), (Mode::Subreaper, false)] {
        for mut sequence in 0..CHOICES.pow(LENGTH) {
            let mut schedule = Schedule::new(mode, reconnects, ms(0));
            let mut tree = Tree::default();
            let mut now = 0;
            for generation in 1..=LENGTH {
                let choice = sequence % CHOICES;
                sequence /= CHOICES;
                let token = if choice.is_multiple_of(2) { A } else { B };
                let event = match choice {
                    0..6 => {
                        // Starting, renewing, and starting with a pause at the end.
                        let (start, pause) = (choice / 2 != 1, choice / 2 == 2);
                        let (term_at, kill_at) = (now + 3000, now + 5000);
                        *tree.allowed_to(token) = (term_at, kill_at);
                        Event::Frame(ToGuard::Grant(Grant {
                            pause,
                            generation,
                            ..grant(token, start, term_at, kill_at)
                        }))
                    }
                    // A server that grants less time, of which the keeper may hear late.
                    15 => {
                        let (term_at, kill_at) = (now.saturating_sub(1000), now + 500);
                        *tree.allowed_to(B) = (term_at, kill_at);
                        Event::Frame(ToGuard::Grant(Grant {
                            generation,
                            ..grant(B, false, term_at, kill_at)
                        }))
                    }
                    6 => Event::Frame(ToGuard::Suspect { token }),
                    8 => Event::Frame(ToGuard::Confirm { token }),
                    7 | 9 => {
                        now += if choice == 7 { 2000 } else { 5000 };
                        Event::Tick
                    }
                    10 => Event::Frame(ToGuard::Stop {
                        token,
                        kill_at: ms(now + 1000),
                    }),
                    11 => Event::KeeperLost { returns: false },
                    12 => Event::KeeperConnected,
                    13 => Event::Signal {
                        signo: TERM,
                        to_group: false,
                    },
                    _ => Event::Signal {
                        signo: CONT,
                        to_group: false,
                    },
                };
                tree.obey(&mut schedule, event, now);
            }
        }
    }
}
