//! The one loop behind a lock: requests out, answers in, state out through a `watch`.
//!
//! It is level-triggered. What *is* (connection, contender, who is ahead) is kept in a few fields;
//! [`Task::drive`] looks at them after every answer and starts whatever request is missing. When a
//! connection goes, all its requests are forgotten, and `drive` asks again over the next one: there
//! is no second way for recovery.

mod agree;
mod haste;
mod hold;
mod link;
mod membership;
mod predecessor;
mod provision;
mod publish;
mod release;
mod strangers;
mod turn;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::{mpsc, oneshot, watch};

#[cfg(feature = "fuzzing")]
pub use self::membership::read as ensemble_id;
use crate::clock::{BootInstant, Clock};
use crate::ensemble::{
    Closed, Ensemble, EnsembleError, EnsembleResult, Incarnation, MultiError, Node, NodeEvent,
};
use crate::error::LockError;
use crate::lease::Lease;
use crate::options::LockOptions;
use crate::participant::Participant;
use crate::queue::Ahead;
use crate::record::Control;
use crate::state::{LockStatus, LossReason};
use crate::token::FencingToken;

/// Answer to a command.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, LockError>>;

/// What a handle asks of its task. When all handles are gone, the lock is abandoned.
pub(crate) enum Command {
    /// Stand in the queue; answered when the contender exists.
    Contend(Reply<()>),
    /// Leave the queue, or release; answered when the contender is known to be gone.
    Release { queue_again: bool, reply: Reply<()> },
    /// Who is in the queue.
    Participants(Reply<Vec<Participant>>),
    /// End the session and the task. Only for a lock that is not in the queue.
    Close(oneshot::Sender<()>),
}

/// What the task waits for. Whatever is here belongs to the present connection.
enum Answer<Connection> {
    Attached(Result<link::Attached<Connection>, EnsembleError>),
    Closed(Closed),
    Entered {
        sent: BootInstant,
        result: Result<agree::Entered, agree::NotEntered>,
    },
    Found(EnsembleResult<Option<turn::Found>>),
    Unbarred(NodeEvent),
    Renewed {
        sent: BootInstant,
        result: Result<(), MultiError>,
    },
    Listed(EnsembleResult<strangers::Listed>),
    Predecessor {
        name: String,
        result: EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>,
    },
    PredecessorEvent {
        name: String,
        event: NodeEvent,
    },
    Own(EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>),
    OwnEvent(NodeEvent),
    Control {
        reading: u64,
        result: EnsembleResult<(Node, BoxFuture<'static, NodeEvent>)>,
    },
    ControlEvent(NodeEvent),
    Recorded {
        sent: BootInstant,
        is_settlement: bool,
        result: Result<(), MultiError>,
    },
    Marked {
        sent: BootInstant,
        result: EnsembleResult<()>,
    },
    Deleted {
        sent: BootInstant,
        result: EnsembleResult<()>,
    },
    Participants(EnsembleResult<Vec<Participant>>),
}

type Answers<Connection> = FuturesUnordered<BoxFuture<'static, Answer<Connection>>>;

/// The next answer; for ever none, while nothing is asked.
async fn next<Connection>(answers: &mut Answers<Connection>) -> Answer<Connection> {
    match answers.next().await {
        Some(answer) => answer,
        None => std::future::pending().await,
    }
}

/// A quorum write under way, for noticing that it stays without an answer.
#[derive(Clone, Copy)]
enum Write {
    Enter,
    Renewal,
    Mark,
    Record,
    Delete,
}

/// The connection of the session.
enum Link<Connection> {
    Down,
    Attaching(haste::Haste),
    Up(Arc<Connection>),
}

/// One's own contender, and what is known of those before it.
struct Entry {
    name: String,
    path: String,
    token: FencingToken,
    /// The lock root under whose agreement it was created; `None` when it was created without one that admits us.
    agreed: Option<Incarnation>,
    /// Who is before us; `None` when it has to be listed.
    ahead: Option<Ahead>,
    is_listing: bool,
    /// The contenders that are watched, and whether they were seen to hold.
    watched: HashMap<String, bool>,
    /// Who may still be writing. For `lockDelay`.
    past: Box<predecessor::Past>,
    is_our_turn: bool,
    /// Whether it was seen to that the lease lasts until renewals extend it. A waiter further back
    /// does not renew, so that little of its lease may be left when it comes to the front.
    is_renewing: bool,
    is_held: bool,
    is_marked: bool,
    is_own_watched: bool,
    /// Whether that watch is in place over this connection, so that a deletion of our own node is heard of before
    /// any later one.
    is_own_seen: bool,
    predecessor_unclean: bool,
}

/// Where we are with the queue.
enum Place {
    Out,
    /// The contender is being created; `is_uncertain` when it may exist already.
    Entering {
        prefix: String,
        is_asked: bool,
        is_uncertain: bool,
    },
    In(Entry),
}

/// A release under way.
struct Releasing {
    queue_again: bool,
    is_asked: bool,
    /// Whether the contender held, so that the control node has to hear of it.
    was_held: bool,
    replies: Vec<Reply<()>>,
}

pub(crate) struct Task<E: Ensemble, C: Clock> {
    ensemble: Arc<E>,
    clock: C,
    options: LockOptions,
    status: watch::Sender<LockStatus>,
    commands: mpsc::Receiver<Command>,
    /// See [`Lock::retain`](crate::Lock::retain).
    retained: watch::Receiver<bool>,
    /// See [`Lock::settle`](crate::Lock::settle).
    settled: watch::Receiver<Option<FencingToken>>,
    /// Answers about the connection itself, and about the queue as a whole.
    link_answers: Answers<E::Connection>,
    /// Answers about our contender. They go with it: a late one says nothing about the next.
    answers: Answers<E::Connection>,
    link: Link<E::Connection>,
    /// Whether the session had more than a place in the queue to lose when its connection went.
    is_urgent: bool,
    /// The last connection of the session: what it takes to go on with it elsewhere.
    session: Option<Arc<E::Connection>>,
    /// The server that was used last.
    server: usize,
    lease: Lease,
    is_contending: bool,
    place: Place,
    contend_replies: Vec<Reply<()>>,
    queries: Vec<Reply<Vec<Participant>>>,
    is_listing_participants: bool,
    releasing: Option<Releasing>,
    lost: Option<LossReason>,
    /// Why the lock cannot be had.
    refusal: Option<LockError>,
    /// The lock root under whose agreement we entered last: believed until a server says otherwise.
    agreed: Option<Incarnation>,
    /// Children of the lock root that are no contenders, as people were told last.
    bystanders: Vec<String>,
    /// Waiting for somebody else's nodes or for another ensemble, and how long to wait before asking for a right again.
    is_barred: bool,
    bar_pause: Duration,
    /// The control node as last seen, with its version; without one where it is not there, or gives no right.
    control: Option<(Control, Option<i32>)>,
    is_control_watched: bool,
    /// Counts the readings of the control node: an answer to an earlier one is out of date.
    control_reading: u64,
    /// The last reading that was answered.
    control_read: u64,
    /// Send times of the writes under way, by [`Write`].
    writes: [Option<BootInstant>; 5],
    last_renewal: BootInstant,
}

impl<E: Ensemble, C: Clock> Task<E, C> {
    pub(crate) fn new(
        ensemble: Arc<E>,
        clock: C,
        options: LockOptions,
        status: watch::Sender<LockStatus>,
        commands: mpsc::Receiver<Command>,
        retained: watch::Receiver<bool>,
        settled: watch::Receiver<Option<FencingToken>>,
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
            retained,
            settled,
            link_answers: Answers::new(),
            answers: Answers::new(),
            link: Link::Down,
            is_urgent: false,
            session: None,
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
            writes: [None; 5],
        }
    }

    /// Runs until the lock is closed or abandoned. Ending, also by a panic, closes the TCP
    /// connection and nothing else: the contender stays until its session expires.
    pub(crate) async fn run(mut self) {
        loop {
            self.drive();
            self.publish();
            let wake = Self::sleep_until(self.clock.clone(), self.next_wake());
            tokio::select! {
                biased;
                answer = next(&mut self.answers) => {
                    self.take(answer);
                    // A release is two events for the heir. What both mean is looked at once.
                    while let Some(Some(answer)) = self.answers.next().now_or_never() {
                        self.take(answer);
                    }
                }
                answer = next(&mut self.link_answers) => self.take(answer),
                command = self.commands.recv() => match command {
                    Some(Command::Close(done)) => return self.close(done).await,
                    Some(command) => self.obey(command),
                    None => return,
                },
                Ok(()) = self.retained.changed() => {}
                Ok(()) = self.settled.changed() => {}
                () = wake => {}
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Contend(reply) => self.contend(reply),
            Command::Release { queue_again, reply } => self.release(queue_again, Some(reply)),
            Command::Participants(reply) => self.queries.push(reply),
            Command::Close(_) => unreachable!("taken by the loop"),
        }
    }

    fn take(&mut self, answer: Answer<E::Connection>) {
        match answer {
            Answer::Attached(result) => self.attached(result),
            Answer::Closed(closed) => self.closed(closed),
            Answer::Entered { sent, result } => self.entered(sent, result),
            Answer::Found(result) => self.found(result),
            Answer::Unbarred(event) => self.unbarred(event),
            Answer::Renewed { sent, result } => self.renewed(sent, result),
            Answer::Listed(result) => self.listed(result),
            Answer::Predecessor { name, result } => self.predecessor(name, result),
            Answer::PredecessorEvent { name, event } => self.predecessor_event(name, event),
            Answer::Own(result) => self.own(result),
            Answer::OwnEvent(event) => self.own_event(event),
            Answer::Control { reading, result } => self.control(reading, result),
            Answer::ControlEvent(event) => self.control_event(event),
            Answer::Recorded {
                sent,
                is_settlement,
                result,
            } => self.recorded(sent, is_settlement, result),
            Answer::Marked { sent, result } => self.marked(sent, result),
            Answer::Deleted { sent, result } => self.deleted(sent, result),
            Answer::Participants(result) => self.participants(result),
        }
    }

    /// Starts whatever is missing.
    fn drive(&mut self) {
        self.watch_the_lease();
        self.keep_the_link();
        let Link::Up(connection) = &self.link else { return };
        let connection = Arc::clone(connection);
        self.ask_participants(&connection);
        if self.releasing.is_some() {
            return self.drive_release(&connection);
        }
        if self.lost.is_some() {
            return self.drive_lost(&connection);
        }
        match &self.place {
            Place::Out => {
                if self.is_contending && !self.is_barred {
                    self.place = Place::Entering {
                        prefix: self.new_prefix(),
                        is_asked: false,
                        is_uncertain: false,
                    };
                    self.drive_entering(&connection);
                }
            }
            Place::Entering { .. } => self.drive_entering(&connection),
            Place::In(_) => self.drive_queue(&connection),
        }
    }

    /// Waits for an answer about our contender.
    fn ask(&mut self, answer: impl Future<Output = Answer<E::Connection>> + Send + 'static) {
        self.answers.push(Box::pin(answer));
    }

    /// Waits for an answer about something that outlives our contender.
    fn ask_link(&mut self, answer: impl Future<Output = Answer<E::Connection>> + Send + 'static) {
        self.link_answers.push(Box::pin(answer));
    }

    /// Our contender is gone, or was never there. Forgets it and everything that was asked about it.
    fn leave(&mut self) {
        self.place = Place::Out;
        self.answers.clear();
        self.is_barred = false;
        self.writes = [None; 5];
        self.control = None;
        self.is_control_watched = false;
    }

    /// Counts an acknowledged quorum write; but only if the connection was never gone, or the
    /// answer might belong to another session.
    fn acknowledge(&mut self, sent: BootInstant) -> bool {
        let Link::Up(connection) = &self.link else {
            return false;
        };
        if !crate::ensemble::Connection::is_intact(&**connection) {
            return false;
        }
        let acknowledged = self.clock.now();
        self.lease
            .acknowledge(crate::lease::Renewal { sent, acknowledged });
        true
    }

    fn writing(&mut self, write: Write) -> BootInstant {
        let now = self.clock.now();
        self.writes[write as usize] = Some(now);
        now
    }

    fn written(&mut self, write: Write) {
        self.writes[write as usize] = None;
    }

    fn next_wake(&self) -> Option<BootInstant> {
        let renewal = self.renewal_due();
        let unanswered = self
            .unanswered_since()
            .map(|sent| sent + self.patience_for_writes());
        let end = match &self.place {
            Place::In(entry) if entry.is_held => self.lease.end(),
            _ => None,
        };
        [renewal, unanswered, end].into_iter().flatten().min()
    }

    fn unanswered_since(&self) -> Option<BootInstant> {
        self.writes.iter().flatten().min().copied()
    }

    async fn sleep_until(clock: C, moment: Option<BootInstant>) {
        match moment {
            // One nanosecond more, so that what is due *after* the moment is due.
            Some(moment) => {
                clock
                    .sleep((moment - clock.now()) + Duration::from_nanos(1))
                    .await
            }
            None => std::future::pending().await,
        }
    }
}
