//! What a guard says while it does not come to its keeper. Pure.

use std::time::Duration;

use lockkeeper_lock::BootInstant;
use rustix::io::Errno;

use crate::link::guard_end::NoKeeper;

/// The keeper may start after the guard.
const PATIENCE: Duration = Duration::from_secs(10);

/// Since when there is no connection, and what was said about it.
#[derive(Debug, Default)]
pub(super) struct Unconnected {
    since: Option<BootInstant>,
    told: Option<&'static str>,
}

impl Unconnected {
    /// What is to be said after this attempt, once.
    pub(crate) fn after(
        &mut self,
        now: BootInstant,
        connected: Result<bool, NoKeeper>,
    ) -> Option<&'static str> {
        let error = match connected {
            Ok(true) => {
                *self = Self::default();
                return None;
            }
            Ok(false) => return None,
            Err(error) => error,
        };
        let since = *self.since.get_or_insert(now);
        let sentence = match error {
            NoKeeper::Impostor => {
                "a process of this container listens at the keeper's socket, where only `lockkeeper sidecar` of another \
                 container may: the guard does not listen to it, and nothing is started until it has ended"
            }
            NoKeeper::Unreachable(Errno::ACCESS | Errno::PERM) => {
                "this user may not connect to the keeper's socket: name the user with --guard-user of `lockkeeper sidecar`; \
                 nothing is started until then"
            }
            _ if now.saturating_since(since) < PATIENCE => return None,
            NoKeeper::Unreachable(Errno::NOENT | Errno::CONNREFUSED) => {
                "there is no keeper at its socket: nothing is started until `lockkeeper sidecar` is there, with the same \
                 --guard-socket"
            }
            _ => {
                "the socket of the keeper cannot be connected to: nothing is started until it can; is --guard-socket \
                 that of `lockkeeper sidecar`?"
            }
        };
        (self.told.replace(sentence) != Some(sentence)).then_some(sentence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_says_once_that_it_may_not_connect_and_after_a_while_that_there_is_no_keeper() {
        let at = |seconds: u64| BootInstant::from_nanos(seconds * 1_000_000_000);
        let mut unconnected = Unconnected::default();
        let mut says = |seconds, error| {
            unconnected
                .after(at(seconds), Err(NoKeeper::Unreachable(error)))
                .unwrap_or_default()
        };
        assert_eq!(says(1, Errno::NOENT), "");
        assert_eq!(says(10, Errno::CONNREFUSED), "");
        assert!(says(11, Errno::NOENT).starts_with("there is no keeper"));
        assert_eq!(says(12, Errno::CONNREFUSED), "");
        assert!(says(13, Errno::ACCESS).contains("--guard-user"));
        assert_eq!(says(14, Errno::ACCESS), "");
        assert_eq!(unconnected.after(at(20), Ok(true)), None);
        for (error, part) in [
            (NoKeeper::Unreachable(Errno::ACCESS), "--guard-user"),
            (NoKeeper::Impostor, "a process of this container"),
        ] {
            let said = unconnected.after(at(20), Err(error)).unwrap_or_default();
            assert!(said.contains(part), "{said}");
        }
        assert_eq!(unconnected.after(at(20), Ok(true)), None);
        assert_eq!(
            unconnected.after(at(30), Err(NoKeeper::Unreachable(Errno::NOENT))),
            None
        );
    }
}
