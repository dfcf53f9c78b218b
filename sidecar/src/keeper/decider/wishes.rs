//! Requests of users, and of the pod.

use std::time::Duration;

use lockkeeper_lock::BootInstant;

/// How long after the sidecar's SIGTERM that of the application's container may come: a kubelet sends both at once to the
/// containers of a pod that ends, unless one is a sidecar, which comes last (KEP-753).
const PATIENCE_FOR_THE_CONTAINER: Duration = Duration::from_secs(1);

/// Requests that are not fulfilled yet.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// A user wants the lock handed over, and waits for the answer.
    step_down: bool,
    /// The lock that was to be handed over is released.
    answer_is_due: bool,
    /// The keeper is asked to end; the code if the application has none of its own.
    ending: Option<u8>,
    /// When a keeper that is asked to end leaves what runs to the next one.
    leave_at: Option<BootInstant>,
    /// The application's container is asked to end.
    container_ends: bool,
    /// When everything has to be stopped, since the pod is ending.
    gone_by: Option<BootInstant>,
}

impl Wishes {
    /// A user wants the lock handed over.
    pub(crate) fn want_step_down(&mut self) {
        self.step_down = true;
    }

    pub(crate) fn has_step_down(&self) -> bool {
        self.step_down
    }

    /// The lock is not handed over: it is left to expire.
    pub(crate) fn drop_step_down(&mut self) {
        self.step_down = false;
    }

    pub(crate) fn released(&mut self) {
        self.answer_is_due |= std::mem::take(&mut self.step_down);
    }

    /// Whether requests for a handover are to be answered; true only once.
    pub(crate) fn take_answer(&mut self) -> bool {
        std::mem::take(&mut self.answer_is_due)
    }

    /// The keeper is asked to end, with this code if the application has none of its own.
    pub(crate) fn want_end(&mut self, code: u8) {
        self.ending = Some(code);
    }

    /// The code to end with, once that is asked.
    pub(crate) fn ending(&self) -> Option<u8> {
        self.ending
    }

    /// The application's container is asked to end, or it is a new one, which is not.
    pub(crate) fn container_ends(&mut self, ends: bool) {
        self.container_ends = ends;
    }

    /// Whether the keeper is asked to end, and the application's container is not.
    pub(crate) fn ends_alone(&self) -> bool {
        self.ending.is_some() && !self.container_ends
    }

    /// When a keeper that is asked to end at `now` leaves what runs to the next one, unless the container ends as well.
    pub(crate) fn leave_at(&mut self, now: BootInstant) -> BootInstant {
        *self.leave_at.get_or_insert(now + PATIENCE_FOR_THE_CONTAINER)
    }

    /// That moment, once it is known.
    pub(crate) fn leaves_at(&self) -> Option<BootInstant> {
        self.leave_at
    }

    /// The pod is ending. The first report counts.
    pub(crate) fn pod_ends(&mut self, gone_by: BootInstant) {
        self.gone_by.get_or_insert(gone_by);
    }

    /// When everything has to be stopped, in a pod that is ending.
    pub(crate) fn gone_by(&self) -> Option<BootInstant> {
        self.gone_by
    }
}
