//! The task that serves a lock, and all that it knows of the lock.
//!
//! It is level-triggered. Each part of [`Task`] keeps the answer to one question of the present (the connection, the
//! place in the queue, what our owner wants). The loop looks at them after every answer ([`Task::drive`]) and starts
//! each request that is missing. When a connection is lost, all its requests are forgotten, and `drive` sends them
//! again over the next one: recovery has no second code path.

mod answer;
mod command;
mod control;
mod end;
mod enter;
mod entering;
mod entry_terms;
mod hold;
mod keep_connected;
mod line;
mod link;
mod obstacles;
mod own;
mod participants;
mod past;
mod patience;
mod pending;
mod place;
mod predecessor;
mod publish;
mod reconnect_pauses;
mod release;
mod renewals;
mod requests;
mod run;
mod statement;
mod takeover;
mod tenure;
mod turn;
mod unanswered_takeover;
mod wishes;

use std::sync::Arc;

use tokio::sync::{mpsc, watch};

pub(crate) use self::command::{Command, Word};
use self::control::ControlNode;
use self::entry_terms::EntryTerms;
use self::line::Line;
use self::link::Link;
use self::obstacles::Obstacles;
use self::own::Own;
use self::participants::Queries;
use self::past::Past;
use self::patience::Patience;
use self::pending::{Pending, Write};
use self::place::Place;
use self::renewals::Renewals;
#[cfg(feature = "fuzzing")]
pub use self::requests::membership::read as ensemble_id;
use self::statement::Statement;
use self::tenure::Tenure;
use self::wishes::Wishes;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{Connection, Ensemble};
use crate::lease::{Lease, Renewal};
use crate::options::LockOptions;
use crate::state::LockStatus;

/// All that is known of a lock. The files below read and change the parts through their methods.
pub(crate) struct Task<E: Ensemble, C: Clock> {
    ensemble: Arc<E>,
    clock: C,
    options: LockOptions,
    status: watch::Sender<LockStatus>,
    commands: mpsc::Receiver<Command>,
    word: watch::Receiver<Word>,
    /// Whether our owner wants the lock, and whether it was lost.
    wishes: Wishes,
    /// Who waits for a list of the contenders.
    queries: Queries,
    /// How far we are on the way into the queue.
    place: Place,
    /// On what terms we enter the queue.
    terms: EntryTerms,
    /// What keeps the lock from us.
    obstacles: Obstacles,
    /// What other clients have written for us.
    control: ControlNode,
    /// Which session is ours, and which connection serves it.
    link: Link<E::Connection>,
    /// Until when the ensemble cannot have ended the session.
    lease: Lease,
    /// Which requests are not answered yet.
    pending: Pending<E::Connection>,
    /// How long they may take.
    patience: Patience,
}

/// Our contender in the queue.
struct Entry {
    /// Which node is ours.
    own: Own,
    /// Who is before us.
    line: Line,
    /// Who held before us and may still be writing.
    past: Past,
    /// Whether we hold.
    tenure: Tenure,
    /// What our data say.
    statement: Statement,
    /// When to renew, and until when nobody can have taken our place.
    renewals: Renewals,
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
        Self {
            link: Link::new(fastrand::usize(..ensemble.servers().max(1))),
            lease: Lease::new(options.timing.session_timeout, options.timing.tick_time),
            ensemble,
            clock,
            options,
            status,
            commands,
            word,
            wishes: Wishes::none(),
            queries: Queries::default(),
            place: Place::Out,
            terms: EntryTerms::default(),
            obstacles: Obstacles::default(),
            control: ControlNode::unread(),
            pending: Pending::new(),
            patience: Patience::default(),
        }
    }

    /// What our owner has told us.
    fn word(&self) -> Word {
        *self.word.borrow()
    }

    /// Our contender is gone, or never existed. Forgets it and all requests about it.
    fn leave(&mut self) {
        self.place = Place::Out;
        self.pending.forget_contender();
        self.control.forget();
    }

    /// Notes a quorum write that is sent now.
    fn writing(&mut self, write: Write) -> BootInstant {
        let now = self.clock.now();
        self.pending.writing(write, now);
        now
    }

    /// Counts an acknowledged quorum write, but only if the connection was never interrupted: otherwise the answer
    /// might belong to another session.
    fn acknowledge(&mut self, sent: BootInstant) -> bool {
        let Some(connection) = self.link.connection() else {
            return false;
        };
        if !connection.is_intact() {
            return false;
        }
        let acknowledged = self.clock.now();
        self.lease.acknowledge(Renewal { sent, acknowledged });
        self.was_acknowledged_after(acknowledged - sent);
        true
    }
}

impl Entry {
    /// Forgets what was asked over a connection that is gone. Events may have been missed, even the deletion of our own
    /// contender. So a contender that does not hold yet lists the queue again, which shows the contenders before it and
    /// whether its own place is still there.
    fn disconnected(&mut self) {
        self.own.unwatched();
        self.line.disconnected(self.tenure.is_held());
    }
}
