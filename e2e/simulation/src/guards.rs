//! The keeper's connection to its guard, in all modes: the loop of `sidecar/src/link/keeper_end.rs` and
//! `sidecar/src/link/keeper_end/listener.rs` around the [`Door`].

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select_all;
use lockkeeper_sidecar::link::protocol::{FromGuard, Hello, Refusal, ToGuard};
use tokio::time::{Instant, sleep_until};

use crate::door::{Door, Newcomer, Peer};
use crate::machine::Machine;
use crate::maybe::maybe;
use crate::socket::{End, Received};

/// As in `sidecar/src/link/keeper_end/listener.rs`.
const PATIENCE_FOR_HELLO: Duration = Duration::from_secs(1);
const PENDING: usize = 8;

/// Events of the guard: as in `sidecar/src/link/keeper_end.rs`.
pub(crate) enum Heard {
    Frame(FromGuard),
    Lost { is_watched: bool },
    Ended { is_proof: bool },
    Succeeded,
}

/// The kinds of connections to a guard.
pub(crate) enum Guards {
    Parent(Option<End>),
    Listener(Listener),
}

/// The keeper's end of the path at which guards connect.
pub(crate) struct Listener {
    machine: Rc<Machine>,
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

/// The events of a listener.
enum Next {
    Said,
    Ended,
    Greeted(usize),
    TookTooLong,
    Knocked,
}

impl Guards {
    pub(crate) fn listen(machine: &Rc<Machine>) -> Self {
        machine.doorway.open();
        Self::Listener(Listener {
            machine: Rc::clone(machine),
            door: Door::new(machine.simulation.rules.newest_guard_wins),
            pending: VecDeque::new(),
            link: None,
            events: VecDeque::new(),
        })
    }

    /// Waits for the next event. Cancel-safe.
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
        // If the guard does not read it, `hear` shows that.
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
        // The guard's last frames are read before its end is reported.
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
            () = maybe(watched.map(|peer| self.machine.ended(peer))) => Next::Ended,
            ((), at, _) = maybe(first) => Next::Greeted(at),
            () = maybe(oldest.map(sleep_until)) => Next::TookTooLong,
            () = self.machine.doorway.knocked() => Next::Knocked,
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
        let Some((peer, end)) = self.machine.doorway.accept() else {
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
        let machine = &self.machine;
        machine
            .simulation
            .say(|| format!("pod {}: process {peer} at the door: {newcomer:?}", machine.number));
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
        self.machine.doorway.let_in(&end);
        self.link = Some(end);
        self.events.push_back(Heard::Frame(FromGuard::Hello(hello)));
    }

    fn look_at(&mut self, peer: Peer, hello: &Hello) -> Newcomer {
        let known = self.machine.tells_ends.then_some(peer);
        let is_connected = self.link.is_some();
        // The end just now was not reported yet.
        if self
            .door
            .watched()
            .is_some_and(|watched| !self.machine.lives(watched))
        {
            self.hang_up();
            self.note_its_end();
        }
        self.door
            .greet(known, hello, is_connected, |peer| self.machine.lives(peer))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.machine.doorway.close();
    }
}

/// The next frame; `None` if the connection is over, or sent something that is not a frame.
fn read(end: &End) -> Option<FromGuard> {
    match end.receive() {
        Received::Frame(bytes) => FromGuard::decode(&bytes).ok(),
        Received::Nothing | Received::Over => None,
    }
}
