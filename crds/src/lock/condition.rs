//! Conditions of a lock and their reasons, as in KEP-1623: a closed list, because alerts name them.

use std::fmt;

/// An enum whose doc comments are also the documentation for users.
macro_rules! documented {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident,)+ }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// All of them, in the order of the documentation.
            pub(crate) const ALL: &[Self] = &[$(Self::$variant),+];

            /// As written in the resource.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// The meaning, for users.
            pub(crate) const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+),)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

documented! {
    /// Type of a condition.
    ConditionType {
        /// The settings are in force: the lock can be taken.
        Ready,
        /// A pod or another client holds the lock.
        Held,
        /// The operator has a session with the ensemble, so the rest of the status is fresh.
        EnsembleReachable,
    }
}

documented! {
    /// Reason of a condition's status.
    Reason {
        /// `Ready=True`: the lock root exists, with the rights to it.
        Provisioned,
        /// `Ready=True`: as `Provisioned`, and the message names pods that were created with other settings than those
        /// in `spec`. They keep their settings until they are restarted.
        PodsOutdated,
        /// `Ready=True`: as `Provisioned`, and the lock stays with an older revision in a rollout, because the
        /// application of the new revision ended after it had got the lock. The message names the pod and the next
        /// step.
        HandoffHeldBack,
        /// `Ready=False`: the settings do not fit together; the message has the details.
        InvalidSpec,
        /// `Ready=False`: the operator could not create the lock root or the rights to it; the message has the reason.
        ProvisioningFailed,
        /// `Ready=False`: `mode` or `maxHolders` was changed while contenders are in the queue. The change takes effect
        /// when the queue is empty; pods that were created with the new setting wait outside the queue until then.
        AgreementPending,
        /// `Ready=False`: a client stands in the queue, and the name of its node does not show its place; or the
        /// operator may not read a child of the lock root. No pod holds the lock beside it; the message names the node.
        UnknownContender,
        /// `Ready=False`, `Held=Unknown`: there is more below the lock root than the operator reads, so it does not
        /// follow the queue; the message has the details. The rest of the status stays as it was. Other locks are not
        /// affected.
        TooManyContenders,
        /// `Ready=False`: a Secret that the settings name is missing or lacks a key.
        /// `EnsembleReachable=False` too, if the operator never had a session with it.
        SecretUnusable,
        /// `Ready=False`: the operator reaches another ensemble than the one that the lock is in, or pods of the lock
        /// were created for another one. No pod is admitted, and the rest of the status stays as it was. If the
        /// operator does not follow the lock's ensemble, `EnsembleReachable=False` and `Held=Unknown` too.
        EnsembleChanged,
        /// `Ready=False`: a host of `spec.zookeeper.connect` is not on the administrator's list of hosts that the
        /// operator may connect to, or all sessions with other ensembles are in use; the message names the value of the
        /// chart to set. If the list is the reason, no pod is admitted.
        EnsembleNotAllowed,
        /// `EnsembleReachable=False`, `Ready=False`: the servers of the ensemble sent more than the operator reads, or
        /// data that ZooKeeper never sends, or did not answer; the operator ended the session, and begins a new one
        /// after a while.
        EnsembleUnusable,
        /// `Ready=False`: the resource DistributedLock in the cluster is of an older release than the operator. It
        /// lacks a field that the operator has to write before it creates nodes of the lock: upgrade the chart
        /// `lockkeeper-crds`.
        ResourceOutdated,
        /// `Ready=False`: the object is being deleted, and waits for the clients in its queue; the message names them.
        Deleting,
        /// `Held=True`: one holder or more.
        HeldByPods,
        /// `Held=False`: the queue is empty.
        NobodyWaits,
        /// `Held=False`: a contender is in the queue and does not hold the lock yet.
        NotTakenYet,
        /// `EnsembleReachable=True`: the session of the operator is alive.
        Connected,
        /// `EnsembleReachable=False`: no session with the ensemble since the time of transition. `Ready=Unknown`
        /// and `Held=Unknown` too: they cannot be known without a session.
        Disconnected,
        /// `EnsembleReachable=False`, `Ready=False`: the ensemble does not accept the credentials.
        CredentialsRefused,
        /// `EnsembleReachable=False`, `Ready=False`: the ensemble and the operator do not agree on TLS, most likely
        /// because of a certificate; the message has the server and the reason.
        TlsFailed,
    }
}
