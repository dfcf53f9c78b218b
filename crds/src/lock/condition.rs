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
        /// `Ready=False`: the settings do not fit together; the message says which and why.
        InvalidSpec,
        /// `Ready=False`: the lock root or the rights to it could not be made; the message says why.
        ProvisioningFailed,
        /// `Ready=False`: a Secret that the settings name is missing or has not what it should.
        /// `EnsembleReachable=False` too, where there never was a session as it says.
        SecretUnusable,
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
