//! A rehearsal of an application's life up to its kill, which only brings the code into memory.

use std::hint::black_box;

use lockkeeper_lock::{BootInstant, FencingToken};

use super::{Action, Event, Mode, Schedule, Sight};
use crate::link::protocol::{Containment, Grant, ToGuard};

/// Goes through what happens at a deadline: the same code, on a schedule of its own, whose actions are not carried
/// out.
pub(in crate::guard) fn rehearse(mode: Mode, containment: Containment) {
    let at = BootInstant::from_nanos;
    let mut schedule = Schedule::new(mode, true, at(0));
    let _ = black_box(schedule.hello(1, 1, containment, 1).encode());
    let grant = Grant {
        token: FencingToken(1),
        generation: 1,
        start: true,
        pause: false,
        term_at: at(1),
        kill_at: at(2),
    };
    let survivor = Sight {
        alive: true,
        unstopped: true,
        ..Sight::default()
    };
    let events = [
        Event::Frame(ToGuard::Grant(grant)),
        Event::Tick,
        Event::Tick,
        Event::Saw(survivor),
        Event::Saw(Sight::default()),
    ];
    for (event, now) in events.into_iter().zip(0..) {
        for action in schedule.handle(event, at(now)).iter() {
            if let Action::Report(frame) = action {
                let _ = black_box(frame.encode());
            }
        }
        let _ = black_box(schedule.wake_at());
    }
}
