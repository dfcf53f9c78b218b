//! Counts what happens, at the place where it happens.

use std::sync::{Arc, Mutex};

use lockkeeper_lock::{BootInstant, FencingToken, LockState, LockStatus};
use tokio::sync::watch;

use crate::link::protocol::{FromGuard, Hello, ToGuard};
use crate::metrics::{LockMetrics, ReleaseOutcome, StopSignal};

/// The metrics of one keeper, and since when it waits and holds.
#[derive(Clone, Debug)]
pub(super) struct Observer {
    metrics: LockMetrics,
    times: Arc<Mutex<Times>>,
    /// Changes with each new connection to a server.
    connected: watch::Sender<()>,
}

#[derive(Debug, Default)]
struct Times {
    queued: Option<BootInstant>,
    held: Option<(FencingToken, BootInstant)>,
    /// Its release was asked for, and is not confirmed.
    is_releasing: bool,
    application: Application,
}

/// What was counted of the end of the application that runs.
#[derive(Debug, Default)]
struct Application {
    is_started: bool,
    has_sigterm: bool,
    has_sigkill: bool,
}

impl Observer {
    pub(super) fn new(metrics: LockMetrics) -> Self {
        Self {
            metrics,
            times: Arc::default(),
            connected: watch::Sender::new(()),
        }
    }

    /// Changes with each new connection to a server from now on.
    pub(super) fn connected(&self) -> watch::Receiver<()> {
        self.connected.subscribe()
    }

    pub(super) fn lock_changed(&self, status: &LockStatus) {
        let now = BootInstant::now();
        let mut times = self.times.lock().expect("no panic while it is locked");
        match (status.state, status.token) {
            (LockState::Connecting | LockState::Waiting, _) => {
                self.released(&mut times, now);
                times.queued.get_or_insert(now);
            }
            (LockState::Held, Some(token)) if times.held.is_none_or(|(held, _)| held != token) => {
                times.held = Some((token, now));
                times.is_releasing = false;
                let waited = times
                    .queued
                    .take()
                    .map_or_else(Default::default, |since| now - since);
                self.metrics.acquired(waited);
            }
            (LockState::Lost, _) => {
                let held = times.held.take().map(|(_, since)| now - since);
                times.queued = None;
                // Published again and again while it is lost; counted when it was held.
                if let (Some(reason), Some(held)) = (status.loss, held) {
                    self.metrics.lost(reason, Some(held));
                }
            }
            (LockState::Releasing, _) => times.is_releasing = true,
            (LockState::Released, _) => {
                self.released(&mut times, now);
                times.queued = None;
            }
            _ => {}
        }
    }

    /// Nothing is left of the contender that was being deleted.
    fn released(&self, times: &mut Times, now: BootInstant) {
        if std::mem::take(&mut times.is_releasing)
            && let Some((_, since)) = times.held.take()
        {
            self.metrics.released(ReleaseOutcome::Confirmed, now - since);
        }
    }

    /// The contender is left to expire.
    pub(super) fn abandoned(&self) {
        let mut times = self.times.lock().expect("no panic while it is locked");
        times.is_releasing = false;
        let held = times.held.take();
        let held = held.map_or_else(Default::default, |(_, since)| BootInstant::now() - since);
        self.metrics.released(ReleaseOutcome::Abandoned, held);
    }

    /// Something has outlived its deadline.
    pub(super) fn survived(&self) {
        self.metrics.survived();
    }

    /// A frame to the guard that makes it send a signal.
    pub(super) fn guard_told(&self, frame: &ToGuard) {
        let mut times = self.times.lock().expect("no panic while it is locked");
        let application = &mut times.application;
        match frame {
            ToGuard::Stop { .. } => self.count(StopSignal::Term, application),
            ToGuard::Revoke { .. } => self.count(StopSignal::Kill, application),
            ToGuard::Suspect { .. } => self.metrics.killed(StopSignal::Stop),
            _ => {}
        }
    }

    /// Counts signals that the guard sent by itself: at the deadline, and after SIGTERM was not enough.
    pub(super) fn guard_said(&self, frame: &FromGuard) {
        let mut times = self.times.lock().expect("no panic while it is locked");
        let application = &mut times.application;
        match *frame {
            FromGuard::Paused { .. } => self.metrics.killed(StopSignal::Stop),
            FromGuard::Started { .. } | FromGuard::Hello(Hello { tree: Some(_), .. }) => {
                *application = Application {
                    is_started: true,
                    ..Application::default()
                };
            }
            FromGuard::Gone {
                code, had_sigterm, ..
            } if application.is_started => {
                if had_sigterm {
                    self.count(StopSignal::Term, application);
                }
                // An application that ends before SIGKILL has a code.
                if code.is_none() {
                    self.count(StopSignal::Kill, application);
                }
                *application = Application::default();
            }
            FromGuard::Exited { .. } | FromGuard::Gone { .. } => *application = Application::default(),
            _ => {}
        }
    }

    /// Once for each signal and application.
    fn count(&self, signal: StopSignal, application: &mut Application) {
        let counted = match signal {
            StopSignal::Term => &mut application.has_sigterm,
            StopSignal::Kill | StopSignal::Stop => &mut application.has_sigkill,
        };
        if !std::mem::replace(counted, true) {
            self.metrics.killed(signal);
        }
    }
}

impl lockkeeper_lock::Observer for Observer {
    fn renewed(&self, took: std::time::Duration) {
        self.metrics.renewed(took);
    }

    fn took_over(&self) {
        self.metrics.took_over();
    }

    fn session_moved(&self) {
        self.metrics.session_moved();
    }

    fn connected(&self) {
        self.connected.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    const A: FencingToken = FencingToken(7);

    /// SIGTERM and SIGKILL counted after this was told and said.
    fn counted(told: &[ToGuard], said: &[FromGuard]) -> [u64; 2] {
        let mut registry = crate::metrics::registry(None);
        let observer = Observer::new(LockMetrics::register(&mut registry));
        observer.guard_said(&FromGuard::Started { token: A, pid: 2 });
        told.iter().for_each(|frame| observer.guard_told(frame));
        said.iter().for_each(|frame| observer.guard_said(frame));
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        ["SIGTERM", "SIGKILL"].map(|signal| {
            let name = format!("lockkeeper_kills_total{{signal=\"{signal}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name));
            value.unwrap().parse().unwrap()
        })
    }

    #[test]
    fn a_release_is_confirmed_when_the_ensemble_has_confirmed_it_and_not_before() {
        let mut registry = crate::metrics::registry(None);
        let observer = Observer::new(LockMetrics::register(&mut registry));
        let releases = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            ["confirmed", "abandoned"].map(|outcome| {
                let name = format!("lockkeeper_releases_total{{outcome=\"{outcome}\"}} ");
                let value = text.lines().find_map(|line| line.strip_prefix(&name));
                value.unwrap().parse::<u64>().unwrap()
            })
        };
        let publish = |state| {
            observer.lock_changed(&LockStatus {
                state,
                token: Some(A),
                ..LockStatus::new()
            });
        };
        let hold_and_release = || [LockState::Held, LockState::Releasing].map(publish);
        hold_and_release();
        assert_eq!(releases(), [0, 0]);
        publish(LockState::Released);
        assert_eq!(releases(), [1, 0]);
        // What comes between two looks at it is not seen.
        hold_and_release();
        publish(LockState::Connecting);
        assert_eq!(releases(), [2, 0]);
        // It took too long, and the contender is left to expire.
        hold_and_release();
        observer.abandoned();
        publish(LockState::Released);
        assert_eq!(releases(), [2, 1]);
    }

    #[test]
    fn a_lock_that_is_only_abandoned_has_no_survivor() {
        let mut registry = crate::metrics::registry(None);
        let observer = Observer::new(LockMetrics::register(&mut registry));
        let survivors = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text.lines().any(|line| line == "lockkeeper_survivors_total 1")
        };
        // A container that waits for its restart, beyond its deadline.
        observer.abandoned();
        assert!(!survivors());
        observer.survived();
        assert!(survivors());
    }

    #[test]
    fn each_signal_that_ends_an_application_is_counted_once_whoever_sent_it() {
        let stop = ToGuard::Stop {
            token: A,
            kill_at: BootInstant::from_nanos(1),
        };
        let revoke = ToGuard::Revoke { token: A };
        let gone = |had_sigterm, code| FromGuard::Gone {
            token: A,
            code,
            had_sigterm,
        };
        let ended = FromGuard::Exited { token: A, code: 0 };
        for (told, said, expected) in [
            (&[][..], gone(true, Some(0)), [1, 0]),
            (&[], gone(true, None), [1, 1]),
            (&[stop], gone(true, Some(143)), [1, 0]),
            (&[stop], gone(true, None), [1, 1]),
            (&[revoke], gone(false, None), [0, 1]),
            (&[stop, revoke], gone(true, None), [1, 1]),
            // A tree that could not be seen to be paused.
            (&[], gone(false, None), [0, 1]),
            (&[], ended, [0, 0]),
            // A user's signal and the keeper's, and the application ends by itself.
            (&[stop], ended, [1, 0]),
        ] {
            assert_eq!(counted(told, &[said]), expected, "{told:?} {said:?}");
        }
        // What never started was not ended either.
        assert_eq!(counted(&[], &[ended, gone(true, None)]), [0, 0]);
    }
}
