//! Whether we hold.

/// What our contender is to the lock.
#[derive(Clone, Copy)]
pub(super) enum Tenure {
    /// It waits, or has lost the lock.
    NotHeld,
    /// Another process has created it and left it to us, and we have not held it yet. What runs under it may run now, so
    /// only our owner gives it up.
    Left,
    Held {
        /// Whether a holder before us may have left without a clean release.
        is_predecessor_unclean: bool,
    },
}

impl Tenure {
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Held { .. })
    }

    pub(super) fn is_left(self) -> bool {
        matches!(self, Self::Left)
    }

    pub(super) fn is_predecessor_unclean(self) -> bool {
        matches!(
            self,
            Self::Held {
                is_predecessor_unclean: true
            }
        )
    }

    /// The lock is lost, if it was held.
    pub(super) fn end(&mut self) {
        if self.is_held() {
            *self = Self::NotHeld;
        }
    }
}
