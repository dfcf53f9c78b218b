//! The keeper's connection to its guard, whichever way it came: the loop of `sidecar/src/keeper/guards.rs`
//! and `sidecar/src/guard/listener.rs` around the [`Door`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select_all;
use lockkeeper_sidecar::guard::protocol::{FromGuard, Hello, Refusal, ToGuard};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::door::{Door, Newcomer, Peer};
use crate::guard::maybe;
use crate::pod::Pod;
use crate::socket::{Breaker, End, Received, pair};

/// As in `sidecar/src/guard/listener.rs`.
const PATIENCE_FOR_HELLO: Duration = Duration::from_secs(1);
const PENDING: usize = 8;

/// The path at which guards connect, whether a keeper listens there or not.
#[derive(Default)]
pub(crate) struct Doorway {
    pub(crate) is_open: Cell<bool>,
    knocks: RefCell<VecDeque<(Peer, End)>>,
    news: Notify,
    /// The connection of the guard that was let in last.
    accepted: RefCell<Option<Breaker>>,
}

impl Doorway {
    async fn knocked(&self) {
        while self.knocks.borrow().is_empty() {
            self.news.notified().await;
        }
    }

    fn accept(&self) -> Option<(Peer, End)> {
        self.knocks.borrow_mut().pop_front()
    }

    fn close(&self) {
        self.is_open.set(false);
        self.knocks.borrow_mut().clear();
    }

    /// The connection in use breaks.
    pub(crate) fn hang_up(&self) {
        if let Some(breaker) = self.accepted.take() {
            breaker.hang_up();
        }
    }

    /// As `connect(2)`: it succeeds before the keeper has accepted.
    pub(crate) fn connect(&self, peer: Peer) -> Option<End> {
        if !self.is_open.get() {
            return None;
        }
        let (ours, keepers) = pair();
        self.knocks.borrow_mut().push_back((peer, keepers));
        self.news.notify_one();
        Some(ours)
    }
}

/// What happened with the guard: as in `sidecar/src/keeper/guards.rs`.
pub(crate) enum Heard {
    Frame(FromGuard),
    Lost { is_watched: bool },
    Ended { is_proof: bool },
    Succeeded,
}

/// Where the guard is.
pub(crate) enum Guards {
    Parent(Option<End>),
    Listener(Listener),
}

/// Where guards arrive.
pub(crate) struct Listener {
    pod: Rc<Pod>,
    door: Door,
    pending: VecDeque<Pending>,
    link: Option<End>,
    events: VecDeque<Heard>,
}

struct Pending {
    peer: Peer,
    end: End,
    until: Instant,
}

/// What a listener wakes for.
enum Next {
    Said,
    Ended,
    Greeted(usize),
    TookTooLong,
    Knocked,
}

impl Guards {
    pub(crate) fn listen(pod: &Rc<Pod>) -> Self {
        pod.doorway.is_open.set(true);
        Self::Listener(Listener {
            pod: Rc::clone(pod),
            door: Door::new(pod.stage.rules.newest_guard_wins),
            pending: VecDeque::new(),
            link: None,
            events: VecDeque::new(),
        })
    }

    /// What happens next. To cancel it loses nothing.
    pub(crate) async fn hear(&mut self) -> Heard {
        match self {
            Self::Parent(None) => std::future::pending().await,
            Self::Parent(Some(end)) => {
                end.readable().await;
                if let Some(frame) = read(end) {
                    return Heard::Frame(frame);
                }
                *self = Self::Parent(None);
                Heard::Lost { is_watched: false }
            }
            Self::Listener(listener) => listener.hear().await,
        }
    }

    pub(crate) fn tell(&self, frame: ToGuard) {
        let link = match self {
            Self::Parent(link) => link,
            Self::Listener(listener) => &listener.link,
        };
        // That nobody reads it shows in `hear`.
        if let Some(end) = link {
            end.send(&frame.encode());
        }
    }
}

impl Listener {
    async fn hear(&mut self) -> Heard {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            match self.next().await {
                Next::Said => match self.link.as_ref().and_then(read) {
                    Some(frame) => return Heard::Frame(frame),
                    None => self.hang_up(),
                },
                Next::Ended => self.note_its_end(),
                Next::Greeted(at) => self.heard(at),
                Next::TookTooLong => drop(self.pending.pop_front()),
                Next::Knocked => self.accept(),
            }
        }
    }

    async fn next(&self) -> Next {
        // What it said last is read before its end is told.
        let watched = self.door.watched().filter(|_| self.link.is_none());
        let oldest = self.pending.front().map(|pending| pending.until);
        let greetings = self
            .pending
            .iter()
            .map(|pending| Box::pin(pending.end.readable()));
        let first = (!self.pending.is_empty()).then(|| select_all(greetings));
        tokio::select! {
            biased;
            () = maybe(self.link.as_ref().map(End::readable)) => Next::Said,
            () = maybe(watched.map(|peer| self.pod.ended(peer))) => Next::Ended,
            ((), at, _) = maybe(first) => Next::Greeted(at),
            () = maybe(oldest.map(sleep_until)) => Next::TookTooLong,
            () = self.pod.doorway.knocked() => Next::Knocked,
        }
    }

    fn hang_up(&mut self) {
        if self.link.take().is_some() {
            let is_watched = self.door.watched().is_some();
            self.events.push_back(Heard::Lost { is_watched });
        }
    }

    fn note_its_end(&mut self) {
        if self.door.watched().is_some() {
            let is_proof = self.door.ended();
            self.events.push_back(Heard::Ended { is_proof });
        }
    }

    fn accept(&mut self) {
        let Some((peer, end)) = self.pod.doorway.accept() else {
            return;
        };
        if self.pending.len() == PENDING {
            self.pending.pop_front();
        }
        self.pending.push_back(Pending {
            peer,
            end,
            until: Instant::now() + PATIENCE_FOR_HELLO,
        });
    }

    fn heard(&mut self, at: usize) {
        let Some(Pending { peer, end, .. }) = self.pending.remove(at) else {
            return;
        };
        let Some(FromGuard::Hello(hello)) = read(&end) else {
            return;
        };
        let newcomer = self.look_at(peer, &hello);
        let pod = &self.pod;
        pod.stage
            .say(|| format!("pod {}: process {peer} at the door: {newcomer:?}", pod.number));
        match newcomer {
            Newcomer::Same => self.hang_up(),
            Newcomer::Next { is_in_doubt } => {
                self.hang_up();
                if is_in_doubt {
                    self.events.push_back(Heard::Succeeded);
                }
            }
            Newcomer::Refused => {
                let why = Refusal::Another;
                end.send(&ToGuard::Refuse { why }.encode());
                return;
            }
        }
        self.pod.doorway.accepted.replace(Some(end.breaker()));
        self.link = Some(end);
        self.events.push_back(Heard::Frame(FromGuard::Hello(hello)));
    }

    fn look_at(&mut self, peer: Peer, hello: &Hello) -> Newcomer {
        let known = self.pod.tells_ends.then_some(peer);
        let is_connected = self.link.is_some();
        // What ended just now was not told yet.
        if self
            .door
            .watched()
            .is_some_and(|watched| !self.pod.lives(watched))
        {
            self.hang_up();
            self.note_its_end();
        }
        self.door
            .greet(known, hello, is_connected, |peer| self.pod.lives(peer))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.pod.doorway.close();
    }
}

/// The next frame; none when the connection is over, or said something that is not understood.
fn read(end: &End) -> Option<FromGuard> {
    match end.receive() {
        Received::Frame(bytes) => FromGuard::decode(&bytes).ok(),
        Received::Nothing | Received::Over => None,
    }
}
