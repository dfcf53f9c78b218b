//! What the state machine promises, without processes.

mod deadlines;
mod ending;
mod keepers;
mod pausing;
mod sequences;
mod signals;

use super::*;
use crate::link::protocol::Grant;

const A: FencingToken = FencingToken(7);
const B: FencingToken = FencingToken(8);
const TERM: u8 = libc::SIGTERM as u8;
const CONT: u8 = libc::SIGCONT as u8;

const GONE: Event = Event::Saw(Sight {
    alive: false,
    unstopped: false,
    unsure: false,
    fresh: false,
});
const STOPPED: Event = Event::Saw(Sight {
    alive: true,
    unstopped: false,
    unsure: false,
    fresh: false,
});
/// What runs was made after the rest was stopped.
const FRESH: Event = Event::Saw(Sight {
    alive: true,
    unstopped: true,
    unsure: false,
    fresh: true,
});
const ALIVE: Event = Event::Saw(Sight {
    alive: true,
    unstopped: true,
    unsure: false,
    fresh: false,
});

fn ms(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

fn grant(token: FencingToken, start: bool, term_at: u64, kill_at: u64) -> Grant {
    Grant {
        token,
        generation: 0,
        start,
        pause: false,
        term_at: ms(term_at),
        kill_at: ms(kill_at),
    }
}

fn pausing(token: FencingToken, start: bool, kill_at: u64) -> Event {
    Event::Frame(ToGuard::Grant(Grant {
        pause: true,
        ..grant(token, start, kill_at - 10, kill_at)
    }))
}

fn granted(token: FencingToken, start: bool, term_at: u64, kill_at: u64) -> Event {
    Event::Frame(ToGuard::Grant(grant(token, start, term_at, kill_at)))
}

/// A connected guard and what it has done so far.
struct Run {
    schedule: Schedule,
    /// Of the last grant.
    generation: u32,
}

impl Run {
    fn new(mode: Mode, reconnects: bool) -> Self {
        let mut schedule = Schedule::new(mode, reconnects, ms(0));
        schedule.handle(Event::KeeperConnected, ms(0));
        Self {
            schedule,
            generation: 0,
        }
    }

    /// Running under A until 100 (SIGTERM) and 200 ms (SIGKILL).
    fn running() -> Self {
        let mut run = Self::new(Mode::Subreaper, false);
        assert_eq!(run.at(0, granted(A, true, 100, 200)), [Action::Start(A)]);
        run.at(1, Event::Started { pid: 42 });
        run
    }

    /// Paused at 100 ms, having run under A.
    fn paused() -> Self {
        let mut run = Self::new(Mode::Pid1, true);
        run.at(0, pausing(A, true, 100));
        run.at(1, Event::Started { pid: 42 });
        assert_eq!(run.at(100, Event::Tick), [Action::Sweep(Sweep::Stop)]);
        assert_eq!(
            run.at(101, STOPPED),
            [Action::Sweep(Sweep::Stop), report(FromGuard::Paused { token: A })]
        );
        run
    }

    /// An event, behind which no frame waits. Grants are counted from 1 on.
    fn at(&mut self, millis: u64, event: Event) -> Vec<Action> {
        match event {
            Event::Frame(ToGuard::Grant(grant)) => {
                self.generation += 1;
                self.granted_as(self.generation, millis, grant)
            }
            Event::Frame(frame) => {
                let mut actions = self.read_frame(millis, frame);
                actions.extend(self.at(millis, Event::Tick));
                actions
            }
            event => self.schedule.handle(event, ms(millis)).iter().collect(),
        }
    }

    /// A grant, behind which none waits.
    fn granted_as(&mut self, generation: u32, millis: u64, grant: Grant) -> Vec<Action> {
        let mut actions = self.read(generation, millis, grant);
        actions.extend(self.at(millis, Event::Tick));
        actions
    }

    /// A grant, behind which others may wait.
    fn read(&mut self, generation: u32, millis: u64, grant: Grant) -> Vec<Action> {
        self.read_frame(millis, ToGuard::Grant(Grant { generation, ..grant }))
    }

    /// A frame, behind which others may wait.
    fn read_frame(&mut self, millis: u64, frame: ToGuard) -> Vec<Action> {
        let actions = self.schedule.handle(Event::Frame(frame), ms(millis));
        actions.iter().collect()
    }
}

fn report(frame: FromGuard) -> Action {
    Action::Report(frame)
}

/// Gone by SIGTERM with this code, or by SIGKILL alone.
fn told_gone(code: Option<u8>) -> Action {
    report(FromGuard::Gone {
        token: A,
        code,
        had_sigterm: code.is_some(),
    })
}

/// Gone by the SIGKILL that came after SIGTERM.
fn told_killed() -> Action {
    report(FromGuard::Gone {
        token: A,
        code: None,
        had_sigterm: true,
    })
}
