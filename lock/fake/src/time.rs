//! True time.

/// True time in whole milliseconds since the world began, the resolution of tokio's timers.
pub(crate) type Millis = u64;

/// A moment that never comes.
pub(crate) const NEVER: Millis = Millis::MAX;
