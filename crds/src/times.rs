//! Times for the rules in CEL and in code.

use crate::duration::ApiDuration;

/// ZooKeeper's default.
pub const DEFAULT_TICK_TIME: ApiDuration = ApiDuration::from_secs(2);

/// Equal to `lockkeeper_lock::SLACK`: with the feature `validation`, the compiler checks that.
pub(crate) const SLACK: ApiDuration = ApiDuration::from_millis(200);

/// Equal to `lockkeeper_lock::KILL_ALLOWANCE`; checked in the same way.
pub(crate) const KILL_ALLOWANCE: ApiDuration = ApiDuration::from_millis(200);
