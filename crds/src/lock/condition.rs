//! Conditions of a lock and their reasons, by KEP-1623: a closed list, since people's alerts name them.

use std::fmt;

/// Type of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionType {
    /// The settings are in force: the lock is there to be taken.
    Ready,
    /// Somebody holds the lock.
    Held,
    /// The operator hears from the ensemble, so that the rest of the status is fresh.
    EnsembleReachable,
}

/// Reason of a condition's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// `Ready=True`: the lock root and the rights to it are made.
    Provisioned,
    /// `Ready=False`: the settings do not fit together; the message says which and why.
    InvalidSpec,
    /// `Ready=False`: the lock root or the rights to it could not be made; the message says why.
    ProvisioningFailed,
    /// `Ready=False`: a Secret that the settings name is missing or has not what it should.
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
    /// `EnsembleReachable=False`: no session with the ensemble since the time of transition.
    /// `Ready=Unknown` and `Held=Unknown`: not to be known without it.
    Disconnected,
}

impl ConditionType {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Ready, Self::Held, Self::EnsembleReachable];

    /// As written in the resource.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Held => "Held",
            Self::EnsembleReachable => "EnsembleReachable",
        }
    }
}

impl fmt::Display for ConditionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Reason {
    /// As written in the resource.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provisioned => "Provisioned",
            Self::InvalidSpec => "InvalidSpec",
            Self::ProvisioningFailed => "ProvisioningFailed",
            Self::SecretUnusable => "SecretUnusable",
            Self::Deleting => "Deleting",
            Self::HeldByPods => "HeldByPods",
            Self::NobodyWaits => "NobodyWaits",
            Self::NotTakenYet => "NotTakenYet",
            Self::Connected => "Connected",
            Self::Disconnected => "Disconnected",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
