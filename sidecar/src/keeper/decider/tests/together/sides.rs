//! The lock and the guard of a [`Round`], as far as the keeper sees them.

use super::*;
use crate::link::protocol::Containment;

impl Round {
    pub(super) fn publish(&mut self) {
        self.decider.lock_changed(self.status.clone(), ms(self.now));
        self.decide();
    }

    pub(super) fn renew(&mut self) {
        if self.status.is_held(ms(self.now)) {
            self.extend();
        }
    }

    fn extend(&mut self) {
        self.status.state = LockState::Held;
        let end = ms(self.now + 11_000);
        self.status.lease_end = Some(end);
        self.lease_ends
            .extend(self.status.token.map(|token| (token, end)));
    }

    /// A server grants less time than the one before.
    pub(super) fn shorten(&mut self) {
        let end = ms(self.now + self.rng.u64(0..6_000));
        if self.status.is_held(ms(self.now)) {
            self.status.lease_end = self.status.lease_end.min(Some(end));
        }
    }

    pub(super) fn hold(&mut self) {
        if self.status.state == LockState::Waiting {
            self.status.predecessor_unclean = self.rng.bool();
            self.extend();
        }
    }

    pub(super) fn lose(&mut self, reason: LossReason) {
        if matches!(self.status.state, LockState::Held | LockState::Suspended) {
            self.status.state = LockState::Lost;
            self.status.loss = Some(reason);
            self.status.yield_requested = false;
        }
    }

    pub(super) fn refuse(&mut self) {
        self.lose(LossReason::Refused);
        if self.status.state == LockState::Waiting {
            self.status = LockStatus::new();
        }
    }

    pub(super) fn answer(&mut self, is_ok: bool) {
        let Some(asked) = self.asked.take() else { return };
        match (is_ok, asked) {
            (true, Ask::Contend) => {
                self.status = LockStatus {
                    state: LockState::Waiting,
                    token: Some(FencingToken(self.next_token)),
                    session_timeout: Some(T),
                    session: Some(1),
                    ..LockStatus::new()
                };
                self.next_token += 1;
            }
            _ => self.status = LockStatus::new(),
        }
        self.decider
            .lock_answered(self.status.clone(), is_ok, ms(self.now));
        self.decide();
    }
}

impl Round {
    pub(super) fn connect(&mut self) {
        if self.is_connected {
            return;
        }
        if std::mem::take(&mut self.is_displaced) {
            self.decider.guard_succeeded();
            self.decide();
        }
        self.is_connected = true;
        self.guard(Event::KeeperConnected);
        let hello = self.schedule.hello(1, 1, Containment::Sweep, 0);
        self.to_keeper.push_back(hello);
    }

    /// A user executes a second guard while the first is away. It is accepted if the kernel does not tell whether the
    /// first has ended, and then goes away again.
    pub(super) fn another_guard(&mut self) {
        if self.is_connected || self.is_watched {
            return;
        }
        self.is_displaced = true;
        self.was_displaced = true;
        self.decider.guard_succeeded();
        self.decide();
        self.decider.guard_said(hello(None, false), ms(self.now));
        self.decide();
        self.to_guard.clear();
        self.decider.guard_lost(false);
        self.decide();
    }

    pub(super) fn disconnect(&mut self) {
        if std::mem::take(&mut self.is_connected) {
            self.to_guard.clear();
            self.to_keeper.clear();
            self.decider.guard_lost(self.is_watched);
            self.decide();
            self.guard(Event::KeeperLost { returns: false });
        }
    }

    pub(super) fn guard(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            let actions = self.schedule.handle(event, ms(self.now));
            for action in actions.iter() {
                if let Action::Report(FromGuard::Started { token, .. }) = action {
                    self.tree_token = Some(token);
                }
                if action != Action::Sweep(Sweep::Look) {
                    self.history.push(format!("{} guard: {action:?}", self.now));
                }
                match action {
                    // What starts here is up to the kubelet.
                    Action::Start(_) if self.policy.kind == Kind::Signal => {
                        events.push_back(Event::Started { pid: 0 });
                    }
                    Action::Start(_) => {
                        assert_eq!(self.tree, Tree::Absent, "started beside another");
                        self.tree = Tree::Runs;
                        events.push_back(Event::Started { pid: 2 });
                    }
                    Action::Terminate | Action::Forward(_) if self.rng.bool() => {
                        self.tree = Tree::Absent;
                        events.push_back(self.ended(143));
                    }
                    Action::Terminate | Action::Forward(_) => {}
                    Action::RemoveLease => self.has_lease_file = false,
                    Action::Sweep(sweep) => {
                        let sight = self.sweep(sweep);
                        events.push_back(Event::Saw(sight));
                    }
                    Action::Clear => {
                        let sight = self.sweep(Sweep::Kill);
                        events.push_back(Event::Saw(sight));
                    }
                    Action::ReportSurvivors(token) if self.is_connected => {
                        self.to_keeper.push_back(survivors(token));
                    }
                    Action::ReportSurvivors(_) => {}
                    Action::Report(frame) if self.is_connected => self.to_keeper.push_back(frame),
                    Action::Report(_) => {}
                    Action::Exit(_) => return self.guard_exits(),
                }
            }
        }
    }

    /// What runs is looked after by the deadline that the keeper knows, once the guard has read what
    /// it was told.
    pub(super) fn check_the_guard(&self) {
        let has_read = self.is_connected && !self.is_frozen && self.to_guard.is_empty();
        let has_told = !self.is_over && self.to_keeper.is_empty() && !self.resists;
        let token = match self.decider.application.state() {
            App::Granted { token, .. } | App::Stopping { token, .. } => Some(token),
            _ => None,
        };
        let is_ours = token.is_some_and(|token| self.decider.queue.is_ours(token));
        if !(has_read && has_told && is_ours && self.tree == Tree::Runs) {
            return;
        }
        let now = ms(self.now);
        let deadline = self.decider.queue.status().deadline().unwrap_or(now).max(now);
        // It looks every 50 ms at what it kills.
        let latest = deadline + Duration::from_millis(60);
        let wakes = self.schedule.wake_at().expect("it looks after what runs");
        assert!(
            wakes <= latest,
            "the guard wakes {wakes:?}, and the lock is held until {deadline:?}"
        );
    }

    /// Starts the container of a guard beside it, if nothing forbids that.
    pub(super) fn kubelet(&mut self) {
        if self.policy.kind == Kind::Signal && self.has_lease_file && self.tree == Tree::Absent {
            self.tree = Tree::Runs;
        }
    }

    /// A guard beside a container sees that something has ended, and no exit codes.
    pub(super) fn ended(&self, code: u8) -> Event {
        match self.policy.kind {
            Kind::Signal => Event::ChildEnded,
            Kind::Run | Kind::Wrap => Event::MainExited { code },
        }
    }

    pub(super) fn sweep(&mut self, sweep: Sweep) -> Sight {
        self.tree = match (sweep, self.tree) {
            (_, Tree::Absent) => Tree::Absent,
            (Sweep::Kill, tree) => {
                if self.resists {
                    tree
                } else {
                    Tree::Absent
                }
            }
            (Sweep::Stop, _) => Tree::Stands,
            (Sweep::Continue, _) => Tree::Runs,
            (Sweep::Look, tree) => tree,
        };
        Sight {
            alive: self.tree != Tree::Absent,
            unstopped: self.tree == Tree::Runs,
            ..Sight::default()
        }
    }

    pub(super) fn guard_exits(&mut self) {
        self.tree = Tree::Absent;
        if self.policy.kind == Kind::Wrap {
            self.schedule = Self::schedule(Kind::Wrap);
            self.disconnect();
            if self.is_watched {
                self.decider.guard_ended(true);
                self.decide();
            } else {
                // The next one comes without a proof that nothing is left.
                self.is_displaced = true;
            }
        } else {
            // Beyond the decider: the keeper stops what is left, and abandons.
            self.is_over = true;
        }
    }

    pub(super) fn read_guard(&mut self) {
        if let Some(frame) = self.to_keeper.pop_front() {
            self.history.push(format!("{} told: {frame:?}", self.now));
            self.decider.guard_said(frame, ms(self.now));
            self.decide();
        }
    }

    pub(super) fn read_keeper(&mut self) {
        if !self.is_frozen
            && let Some(frame) = self.to_guard.pop_front()
        {
            self.guard(Event::Frame(frame));
        }
    }
}
