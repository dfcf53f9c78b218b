//! The fields of a `DistributedLock`, their values and limits. `kubectl explain` shows the doc comments.

use std::time::Duration;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::status::DistributedLockStatus;
use super::zookeeper::ZooKeeperSpec;
use crate::cel;
use crate::duration::ApiDuration;
use crate::lease::ApiLease;

/// The settings of a lock. A pod keeps the settings that it was created with: a change affects only pods that are
/// created after it.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[kube(
    group = "lockkeeper.io",
    version = "v1alpha1",
    kind = "DistributedLock",
    namespaced,
    doc = "A lock that lets at most one pod (or at most maxHolders) of a workload run its application at a time. \
           Put a workload behind it with the annotation lockkeeper.io/lock.",
    status = "DistributedLockStatus",
    derive = "PartialEq",
    shortname = "dlock",
    category = "lockkeeper",
    printcolumn(name = "Mode", type_ = "string", json_path = ".spec.mode", description = "Which pods may hold the lock together"),
    printcolumn(name = "Holder", type_ = "string", json_path = ".status.holders[0].pod", description = "The pod that holds the lock, the one with the lowest token if there are several"),
    printcolumn(name = "Token", type_ = "integer", json_path = ".status.holders[0].fencingToken", description = "Fencing token of the holder"),
    printcolumn(name = "Waiting", type_ = "integer", json_path = ".status.waiting", description = "Pods in the queue that do not hold the lock"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.holders[0].since", description = "How long the holder has had the lock"),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether the settings are in force"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.holders[0].node", priority = 1, description = "The holder's node"),
    printcolumn(name = "Max-Holders", type_ = "integer", json_path = ".spec.maxHolders", priority = 1, description = "How many may hold the lock at once"),
    printcolumn(name = "Session-Timeout", type_ = "string", json_path = ".spec.sessionTimeout", priority = 1, description = "How long the ensemble keeps the lock of a silent holder"),
    printcolumn(name = "Lease", type_ = "string", json_path = ".status.holders[0].leaseDuration", priority = 1, description = "How long the holder may be silent before a next pod with a lease duration takes its place"),
    printcolumn(name = "Taken-From", type_ = "string", json_path = ".status.holders[0].takenFrom.pod", priority = 1, description = "The silent pod whose place the holder took"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", priority = 1, description = "Why the lock is ready or not"),
    validation = cel::name(),
    validation = cel::mode_while_in_use(),
    validation = cel::max_holders_while_in_use(),
    validation = cel::ensemble_while_in_use(),
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = cel::holders_of_mode(), validation = cel::timing(), validation = cel::lease())]
pub struct DistributedLockSpec {
    /// Which pods may hold the lock together. `Exclusive`: one pod alone (or up to `maxHolders` pods). `ReadWrite`: one
    /// writer alone, or any number of readers; a pod chooses with the annotation `lockkeeper.io/access`. Default:
    /// `Exclusive`. Cannot change while pods hold or await the lock.
    #[serde(default)]
    pub mode: LockMode,

    /// How many pods may hold an `Exclusive` lock at once: a count, from 1 to 1000. Default: 1. Can grow at any time;
    /// the new number takes effect when no pod holds or awaits the lock. Can shrink only while no pod does. With more
    /// than 1, `mode` must be `Exclusive`.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MAX_HOLDERS))]
    pub max_holders: i32,

    /// How long the ensemble keeps the lock of a holder that has gone silent (T). A duration, from `1s` to `1h`.
    /// Default: `15s`. By default an ensemble grants from 2 to 20 of its ticks. A fifth of `sessionTimeout` must stay
    /// free: four renewals (usually 4 × `renewInterval`) + `stopGrace` + 1 % of `sessionTimeout` + 200 ms must be at
    /// most four fifths of it.
    #[serde(default = "default_session_timeout")]
    #[x_kube(validation = cel::between("sessionTimeout", MIN_SESSION_TIMEOUT, MAX_SESSION_TIMEOUT))]
    pub session_timeout: ApiDuration,

    /// How long the application has between SIGTERM and SIGKILL when the lock is about to be lost. A duration,
    /// from `0s` to `1h`, within what `sessionTimeout` allows. Default: `3s`.
    #[serde(default = "default_stop_grace")]
    #[x_kube(validation = cel::between("stopGrace", ApiDuration::from_secs(0), MAX_SESSION_TIMEOUT))]
    pub stop_grace: ApiDuration,

    /// Time between two proofs that the lock is still held, each a small write to the ensemble, by the holder and
    /// by the next in the queue. A duration, from `50ms` to `10m`. Default: an eighth of `sessionTimeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = cel::between("renewInterval", MIN_RENEW_INTERVAL, MAX_RENEW_INTERVAL))]
    pub renew_interval: Option<ApiDuration>,

    /// How long a holder may be silent before the next pod takes its place. If its session ends sooner, the place is
    /// free then. The silent one has stopped its application by then. `off`: only `sessionTimeout` decides. `auto`: the
    /// shortest with which `sessionTimeout` stays as patient as without, 8.5 s with the defaults. A duration, from
    /// `500ms` to `1h`: this one; `renewInterval` (at most an eighth of it) + `stopGrace` + 1 % of it + 200 ms must be
    /// at most four fifths of it. Default: `auto`. In YAML write `"off"` with quotes: the bare word is a boolean.
    #[serde(default)]
    #[x_kube(validation = cel::lease_between(MIN_LEASE_DURATION, MAX_LEASE_DURATION))]
    pub lease_duration: ApiLease,

    /// What happens to the application when the lock cannot be kept. `Kill`: SIGTERM, then SIGKILL at the deadline.
    /// `Pause`: SIGSTOP at the deadline; it goes on when its pod holds the lock again, under a new fencing token.
    /// Default: `Kill`.
    #[serde(default)]
    pub on_loss: OnLoss,

    /// What happens to the application while the connection is in doubt but the lock is certainly still held.
    /// `Continue`: nothing. `Pause`: SIGSTOP, and SIGCONT as soon as the lock is confirmed. Default: `Continue`.
    #[serde(default)]
    pub on_suspect: OnSuspect,

    /// What happens to the lock when the application exits by itself. `Release`: the next pod gets it at once.
    /// `Hold`: the pod keeps it while the application is started again. Default: `Release`.
    #[serde(default)]
    pub on_exit: OnExit,

    /// How long a new holder waits before it starts the application, if the one before it did not release the lock
    /// cleanly: for resources that check no fencing token and may still receive late writes. A duration, from `0s` to
    /// `24h`. Default: `0s`.
    #[serde(default)]
    #[x_kube(validation = cel::between("lockDelay", ApiDuration::from_secs(0), MAX_LOCK_DELAY))]
    pub lock_delay: ApiDuration,

    /// When the operator asks the holder to hand the lock over. `OnRollout`: when a healthy pod of the newest
    /// revision waits and the holder is older. `Never`: the lock moves only when its holder ends. Default:
    /// `OnRollout`.
    #[serde(default)]
    pub handoff: Handoff,

    /// The ensemble that keeps this lock. Default: the operator's. Cannot move to another ensemble while pods hold
    /// or await the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zookeeper: Option<ZooKeeperSpec>,

    /// What happens to the lock's nodes in ZooKeeper when this object is deleted. The deletion waits while a client is
    /// in the queue. `Delete`: the operator deletes them. `Retain`: they stay. Default: `Delete`.
    #[serde(default)]
    pub deletion_policy: DeletionPolicy,
}

/// Shortest session timeout: two ticks of the fastest ensemble that makes sense.
pub(crate) const MIN_SESSION_TIMEOUT: ApiDuration = ApiDuration::from_secs(1);
pub(crate) const MAX_HOLDERS: i32 = 1000;
pub(crate) const MAX_SESSION_TIMEOUT: ApiDuration = ApiDuration::from_secs(3_600);
/// Shortest renewal interval: each holder writes twenty times a second.
pub(crate) const MIN_RENEW_INTERVAL: ApiDuration = ApiDuration::from_millis(50);
pub(crate) const MAX_RENEW_INTERVAL: ApiDuration = ApiDuration::from_secs(600);
/// Shortest lease duration: a renewal each sixteenth of a second.
pub(crate) const MIN_LEASE_DURATION: ApiDuration = ApiDuration::from_millis(500);
/// Longest lease duration, equal to `lockkeeper_lock::LONGEST_LEASE`.
pub(crate) const MAX_LEASE_DURATION: ApiDuration = ApiDuration::from_secs(3_600);
pub(crate) const MAX_LOCK_DELAY: ApiDuration = ApiDuration::from_secs(24 * 3_600);

macro_rules! choice {
    ($(#[$doc:meta])* $name:ident { $(#[$first_doc:meta])* $first:ident, $($(#[$variant_doc:meta])* $variant:ident),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Serialize, Deserialize, JsonSchema, Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            $first,
            $($(#[$variant_doc])* $variant),+
        }

        impl $name {
            /// As written in the resource.
            pub const fn as_str(self) -> &'static str {
                match self {
                    Self::$first => stringify!($first),
                    $(Self::$variant => stringify!($variant)),+
                }
            }
        }
    };
}

choice! {
    /// Which pods may hold a lock together.
    LockMode {
        /// One holder, or up to `maxHolders`.
        Exclusive,
        /// One writer alone, or any number of readers.
        ReadWrite,
    }
}

choice! {
    /// What happens to the application at the deadline.
    OnLoss {
        /// SIGTERM, then SIGKILL.
        Kill,
        /// SIGSTOP, and SIGCONT under the next token.
        Pause,
    }
}

choice! {
    /// What happens to the application while the connection is in doubt.
    OnSuspect {
        /// Nothing.
        Continue,
        /// SIGSTOP, and SIGCONT once the lock is confirmed.
        Pause,
    }
}

choice! {
    /// What happens to the lock when the application exits by itself.
    OnExit {
        /// The next pod gets it.
        Release,
        /// The pod keeps it.
        Hold,
    }
}

choice! {
    /// When the operator asks the holder to hand over.
    Handoff {
        /// When a pod of a newer revision waits.
        OnRollout,
        /// Never.
        Never,
    }
}

choice! {
    /// What happens to the nodes in ZooKeeper at the end.
    DeletionPolicy {
        /// The operator deletes them.
        Delete,
        /// They stay.
        Retain,
    }
}

const fn one() -> i32 {
    1
}

const fn default_session_timeout() -> ApiDuration {
    ApiDuration::from_secs(15)
}

const fn default_stop_grace() -> ApiDuration {
    ApiDuration::from_secs(3)
}

impl DistributedLockSpec {
    /// The defaults for an ensemble with this `tickTime`: if five of its ticks are longer than the default session
    /// timeout, they are the session timeout. Then a renewal interval, an eighth of it, is longer than half a tick and
    /// the slack, so that these times fit together.
    pub fn for_tick(tick_time: Duration) -> Self {
        let five_ticks = ApiDuration::from(tick_time.saturating_mul(5));
        Self {
            session_timeout: default_session_timeout().max(five_ticks),
            ..Self::default()
        }
    }
}

impl Default for DistributedLockSpec {
    fn default() -> Self {
        Self {
            mode: LockMode::default(),
            max_holders: one(),
            session_timeout: default_session_timeout(),
            stop_grace: default_stop_grace(),
            renew_interval: None,
            lease_duration: ApiLease::default(),
            on_loss: OnLoss::default(),
            on_suspect: OnSuspect::default(),
            on_exit: OnExit::default(),
            lock_delay: ApiDuration::default(),
            handoff: Handoff::default(),
            zookeeper: None,
            deletion_policy: DeletionPolicy::default(),
        }
    }
}
