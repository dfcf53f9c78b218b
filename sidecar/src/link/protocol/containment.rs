//! The kinds of containment, as the guard names them to the keeper.

/// What the application is held together by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Containment {
    /// A control group of its own, below that of the guard.
    Cgroup,
    /// A PID namespace of its own: of its container, or one that the guard made.
    Pidns,
    /// Nothing: what descends from the application is looked for in `/proc`.
    Sweep,
    /// Another container of the pod, whose processes are looked for in `/proc`.
    Container,
}

impl Containment {
    pub const ALL: [Self; 4] = [Self::Cgroup, Self::Pidns, Self::Sweep, Self::Container];

    /// Its name, as on the socket and in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cgroup => "cgroup",
            Self::Pidns => "pidns",
            Self::Sweep => "sweep",
            Self::Container => "container",
        }
    }

    /// The kind with this number in [`Hello`](super::Hello), if there is one.
    pub(super) fn with_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.number() == number)
    }

    /// Its number in [`Hello`](super::Hello). No kind has 0.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Cgroup => 1,
            Self::Pidns => 2,
            Self::Sweep => 3,
            Self::Container => 4,
        }
    }
}
