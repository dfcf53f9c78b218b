//! Conditions of a lock and their reasons, by KEP-1623: a closed list, since people's alerts name them.

use std::fmt;

/// An enum whose documentation is also that of users.
macro_rules! documented {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident,)+ }) => {
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// All of them, in the order in which they are documented.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// As written in the resource.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant),)+
                }
            }

            /// What it means, for users.
            pub const fn meaning(self) -> &'static str {
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
        /// The settings are in force: the lock is there to be taken.
        Ready,
        /// Somebody holds the lock.
        Held,
        /// The operator hears from the ensemble, so that the rest of the status is fresh.
        EnsembleReachable,
    }
}

documented! {
    /// Reason of a condition's status.
    Reason {
        /// `Ready=True`: the lock root and the rights to it are made.
        Provisioned,
        /// `Ready=True`: as `Provisioned`, and the message names pods that were made with other settings than those in
        /// `spec`. They keep them until they are restarted.
        PodsOutdated,
        /// `Ready=True`: as `Provisioned`, and the lock stays with an older revision in a rollout: the application of the
        /// new one ended after it had got the lock. The message names the pod and says what to do.
        HandoffHeldBack,
        /// `Ready=False`: the settings do not fit together; the message says which and why.
        InvalidSpec,
        /// `Ready=False`: the lock root or the rights to it could not be made; the message says why.
        ProvisioningFailed,
        /// `Ready=False`: `mode` or `maxHolders` was changed while contenders are in the queue. It comes into force when
        /// the queue is empty; pods that were made with the new setting wait outside until then.
        AgreementPending,
        /// `Ready=False`: a client stands in the queue whose place cannot be told from the name of its node. The lock is
        /// not held beside it; the message names the node.
        UnknownContender,
        /// `Ready=False`, `Held=Unknown`: there is more below the lock root than the operator takes in, so it does not
        /// follow the queue; the message says what and how much. What was known stays. Other locks go on.
        TooManyContenders,
        /// `Ready=False`: a Secret that the settings name is missing or has not what it should.
        /// `EnsembleReachable=False` too, where there never was a session as it says.
        SecretUnusable,
        /// `Ready=False`: the operator reaches another ensemble than the one that the lock is in, or pods of the lock
        /// were made for another one. No pod is admitted, and what was known stays. Where the operator does not
        /// follow the lock's ensemble, `EnsembleReachable=False` and `Held=Unknown` too.
        EnsembleChanged,
        /// `Ready=False`: the administrator has not put a host of `spec.zookeeper.connect` on the list of hosts that
        /// the operator may talk to, or all sessions with other ensembles are taken; the message says which value
        /// of the chart to set. No pod is admitted where it is the list.
        EnsembleNotAllowed,
        /// `EnsembleReachable=False`, `Ready=False`: the servers of the ensemble sent more than the operator takes, or
        /// what no ZooKeeper sends, or did not answer; the session was ended, and is begun again after a while.
        EnsembleUnusable,
        /// `Ready=False`: the resource DistributedLock in the cluster is of an older release than the operator, and does not
        /// keep what the operator has to write down before it makes anything of the lock: upgrade the chart `lockkeeper-crds`.
        ResourceOutdated,
        /// `Ready=False`: the object is being deleted, and waits for the holders that the message names.
        Deleting,
        /// `Held=True`: one holder or more.
        HeldByPods,
        /// `Held=False`: nobody is in the queue.
        NobodyWaits,
        /// `Held=False`: somebody is in the queue and does not hold the lock yet.
        NotTakenYet,
        /// `EnsembleReachable=True`: the session of the operator is alive.
        Connected,
        /// `EnsembleReachable=False`: no session with the ensemble since the time of transition. `Ready=Unknown`
        /// and `Held=Unknown`: not to be known without it.
        Disconnected,
        /// `EnsembleReachable=False`, `Ready=False`: the ensemble does not accept the credentials.
        CredentialsRefused,
        /// `EnsembleReachable=False`, `Ready=False`: the ensemble and the operator do not agree on TLS, on a
        /// certificate most likely; the message says which server and why.
        TlsFailed,
    }
}
