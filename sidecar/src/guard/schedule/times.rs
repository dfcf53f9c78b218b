//! How long the guard waits for something, and how often it looks.

use std::time::Duration;

/// How long SIGKILL or SIGSTOP may take to be seen to work, before the guard takes the next
/// harsher measure. Half of the fixed part of the margin between deadline and end of the lease
/// (`lockkeeper_lock::KILL_ALLOWANCE`), so that the harsher measure still has the other half.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// How long SIGKILL may take at most while nobody else can get the lock: before the deadline of the lease, after a stop
/// that was wished or an end of the main process. On a machine that is short of processors, killed processes end late,
/// and the harsher measure would cost a container its exit code, and a Job its pod.
pub(super) const PATIENCE_WHILE_HELD: Duration = Duration::from_secs(2);

/// How often a keeper that is our child is told that we are at work: it takes a guard that is silent for [`PATIENCE`]
/// as stopped.
pub(super) const AT_WORK_EVERY: Duration = Duration::from_millis(20);

/// How often it is told that something outlives SIGKILL.
pub(super) const SURVIVORS_EVERY: Duration = Duration::from_secs(5);

/// How often a paused tree is looked at: another process may have sent it SIGCONT.
pub(super) const PAUSED_LOOK: Duration = Duration::from_millis(50);

/// Limits of the interval at which a container without the lock is searched: short after something
/// was found in it, since a kubelet may be restarting it, and longer while it stays empty.
pub(super) const WATCH_SHORTEST: Duration = Duration::from_millis(20);
pub(super) const WATCH_LONGEST: Duration = Duration::from_millis(200);

/// How often a container that may run is looked at until something is seen in it. What lives shorter, from the
/// making of a container's first process on, may go unseen: then its end is not told...
pub(super) const START_LOOK: Duration = Duration::from_millis(50);
/// ...and from then on, beside the moments at which a process of it ends.
pub(super) const END_LOOK: Duration = Duration::from_secs(1);

/// Time to the next sweep, when sweeps have gone on for `elapsed`: often as long as the margin runs,
/// then seldom, since the processes that are left then wait for something else, such as a disk.
pub(super) fn interval(elapsed: Duration) -> Duration {
    Duration::from_millis(if elapsed <= PATIENCE { 1 } else { 50 })
}

/// A fork, and locking the memory again after it, take some milliseconds; much longer where memory is short.
pub(super) const TIME_TO_FORK: Duration = Duration::from_secs(1);
