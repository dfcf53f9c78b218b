//! The state of the task, and how it sends requests, counts writes and forgets answers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use super::answer::{Answer, Answers};
use super::command::{Command, Reply, Word};
use super::haste::Haste;
use super::place::{Place, Releasing};
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble, Incarnation};
use crate::error::LockError;
use crate::lease::{Lease, Renewal};
use crate::loss::LossReason;
use crate::options::LockOptions;
use crate::participant::Participant;
use crate::record::Control;
use crate::state::LockStatus;
use crate::ticket::{SessionKey, Ticket};

/// A quorum write under way, kept to notice a missing answer.
#[derive(Clone, Copy)]
pub(super) enum Write {
    Enter,
    Renewal,
    Mark,
    Record,
    Delete,
    TakeOver,
}

impl Write {
    pub(super) const ALL: [Self; 6] = [
        Self::Enter,
        Self::Renewal,
        Self::Mark,
        Self::Record,
        Self::Delete,
        Self::TakeOver,
    ];
}

/// The connection of the session.
pub(super) enum Link<Connection> {
    Down,
    Attaching(Haste),
    Up(Arc<Connection>),
}

pub(crate) struct Task<E: Ensemble, C: Clock> {
    pub(super) ensemble: Arc<E>,
    pub(super) clock: C,
    pub(super) options: LockOptions,
    pub(super) status: watch::Sender<LockStatus>,
    pub(super) commands: mpsc::Receiver<Command>,
    pub(super) word: watch::Receiver<Word>,
    /// Answers about the connection itself, and about the queue as a whole.
    pub(super) link_answers: Answers<E::Connection>,
    /// Answers about our contender, dropped with it: a late answer has no meaning for the next contender.
    pub(super) answers: Answers<E::Connection>,
    pub(super) link: Link<E::Connection>,
    /// Whether the session had more to lose than a place in the queue when its connection was lost.
    pub(super) is_urgent: bool,
    /// The last connection of the session, needed to continue the session on another server.
    pub(super) session: Option<Arc<E::Connection>>,
    /// The session of another process with which to begin: until a server serves it.
    pub(super) resuming: Option<Ticket>,
    /// Of our session, once it is known.
    pub(super) key: Option<SessionKey>,
    /// The server that was used last.
    pub(super) server: usize,
    pub(super) lease: Lease,
    pub(super) is_contending: bool,
    pub(super) place: Place,
    pub(super) contend_replies: Vec<Reply<()>>,
    pub(super) queries: Vec<Reply<Vec<Participant>>>,
    pub(super) is_listing_participants: bool,
    pub(super) releasing: Option<Releasing>,
    pub(super) lost: Option<LossReason>,
    /// Why we cannot have the lock.
    pub(super) refusal: Option<LockError>,
    /// The lock root under whose agreement we entered last: used until a server contradicts it.
    pub(super) agreed: Option<Incarnation>,
    /// Children of the lock root that are not contenders, as last logged.
    pub(super) bystanders: Vec<String>,
    /// Whether we wait for nodes that another client creates, or for another ensemble; and how long to wait before
    /// asking for a right again.
    pub(super) is_barred: bool,
    pub(super) bar_pause: Duration,
    /// The control node as last seen, with its version; no version if it is missing or gives no right.
    pub(super) control: Option<(Control, Option<i32>)>,
    pub(super) is_control_watched: bool,
    /// Counts the readings of the control node: an answer to an earlier one is out of date.
    pub(super) control_reading: u64,
    /// The last reading that was answered.
    pub(super) control_read: u64,
    /// Send times of the writes under way, by [`Write`].
    pub(super) writes: [Option<BootInstant>; Write::ALL.len()],
    pub(super) last_renewal: BootInstant,
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(crate) fn new(
        ensemble: Arc<E>,
        clock: C,
        options: LockOptions,
        status: watch::Sender<LockStatus>,
        commands: mpsc::Receiver<Command>,
        word: watch::Receiver<Word>,
    ) -> Self {
        let lease = Lease::new(options.timing.session_timeout, options.timing.tick_time);
        let server = fastrand::usize(..ensemble.servers().max(1));
        Self {
            last_renewal: clock.now(),
            ensemble,
            clock,
            options,
            status,
            commands,
            word,
            link_answers: Answers::new(),
            answers: Answers::new(),
            link: Link::Down,
            is_urgent: false,
            session: None,
            resuming: None,
            key: None,
            server,
            lease,
            is_contending: false,
            place: Place::Out,
            contend_replies: Vec::new(),
            queries: Vec::new(),
            is_listing_participants: false,
            releasing: None,
            lost: None,
            refusal: None,
            agreed: None,
            bystanders: Vec::new(),
            is_barred: false,
            bar_pause: Duration::ZERO,
            control: None,
            is_control_watched: false,
            control_reading: 0,
            control_read: 0,
            writes: [None; Write::ALL.len()],
        }
    }

    /// What our owner has told us.
    pub(super) fn word(&self) -> Word {
        *self.word.borrow()
    }

    /// Waits for an answer about our contender.
    pub(super) fn ask(&mut self, answer: impl Future<Output = Answer<E::Connection>> + Send + 'static) {
        self.answers.push(Box::pin(answer));
    }

    /// Waits for an answer about something that outlives our contender.
    pub(super) fn ask_link(&mut self, answer: impl Future<Output = Answer<E::Connection>> + Send + 'static) {
        self.link_answers.push(Box::pin(answer));
    }

    /// Our contender is gone, or never existed. Forgets it and all requests about it.
    pub(super) fn leave(&mut self) {
        self.place = Place::Out;
        self.answers.clear();
        self.is_barred = false;
        self.writes = [None; Write::ALL.len()];
        self.control = None;
        self.is_control_watched = false;
    }

    /// Counts an acknowledged quorum write, but only if the connection was never interrupted: otherwise the answer
    /// might belong to another session.
    pub(super) fn acknowledge(&mut self, sent: BootInstant) -> bool {
        let Link::Up(connection) = &self.link else {
            return false;
        };
        if !connection.is_intact() {
            return false;
        }
        let acknowledged = self.clock.now();
        self.lease.acknowledge(Renewal { sent, acknowledged });
        true
    }

    pub(super) fn writing(&mut self, write: Write) -> BootInstant {
        let now = self.clock.now();
        self.writes[write as usize] = Some(now);
        now
    }

    pub(super) fn written(&mut self, write: Write) {
        self.writes[write as usize] = None;
    }
}
