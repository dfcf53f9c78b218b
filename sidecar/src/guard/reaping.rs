//! Reaping children that have ended, a bounded number at a time.

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, WaitStatus, wait};

/// Children that are reaped before the process looks at its deadline again, or kills once more: some milliseconds. In a
/// storm of forks others end as fast as they are reaped.
const MOST: usize = 512;

/// What is left after reaping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Left {
    /// Perhaps children that have ended. No signal tells of them again.
    More,
    Living,
    #[default]
    Nothing,
}

/// Reaps children that have ended, and passes on how.
pub(super) fn reap(mut each: impl FnMut(Pid, WaitStatus)) -> Left {
    reap_from(|| wait(WaitOptions::NOHANG), |(pid, status)| each(pid, status))
}

fn reap_from<T>(mut next: impl FnMut() -> Result<Option<T>, Errno>, mut each: impl FnMut(T)) -> Left {
    for _ in 0..MOST {
        match next() {
            Ok(Some(ended)) => each(ended),
            Ok(None) => return Left::Living,
            // ECHILD: with NOHANG there is no other error.
            Err(_) => return Left::Nothing,
        }
    }
    Left::More
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storm_that_ends_as_fast_as_it_is_reaped_does_not_keep_the_guard_from_its_deadline() {
        let mut reaped = 0;
        let left = reap_from(|| Ok(Some(())), |()| reaped += 1);
        assert_eq!((left, reaped), (Left::More, MOST));
    }

    #[test]
    fn every_child_that_has_ended_is_reaped_and_what_is_left_is_told() {
        for (last, left) in [(Ok(None), Left::Living), (Err(Errno::CHILD), Left::Nothing)] {
            let mut children = vec![last, Ok(Some(8)), Ok(Some(9))];
            let mut reaped = Vec::new();
            let said = reap_from(
                || children.pop().expect("not asked again"),
                |child| reaped.push(child),
            );
            assert_eq!((said, reaped), (left, vec![9, 8]));
        }
    }
}
