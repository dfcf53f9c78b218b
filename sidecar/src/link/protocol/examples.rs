//! A frame of every kind, for tests and as seeds of the crate `fuzz`.

use lockkeeper_lock::{BootInstant, FencingToken, SESSION_PASSWORD_LEN, SessionKey};

use super::{Containment, FromGuard, Grant, Hello, Refusal, TicketHalf, ToGuard, Tree};

const TOKEN: FencingToken = FencingToken(4_294_967_331);

/// The halves of a ticket.
const SESSION: TicketHalf = TicketHalf::Session {
    key: SessionKey {
        id: i64::MIN,
        password: [255; SESSION_PASSWORD_LEN],
    },
    timeout: u32::MAX,
};
const CONTENDER: TicketHalf = TicketHalf::Contender {
    unique: uuid::Uuid::from_u128(0x0001_0203_0405_0607_0809_0a0b_0c0d_0eff),
    token: TOKEN,
    lease: 1,
};

pub fn of_the_keeper() -> Vec<ToGuard> {
    let grant = |start, pause| {
        ToGuard::Grant(Grant {
            token: TOKEN,
            generation: u32::MAX,
            start,
            pause,
            term_at: BootInstant::from_nanos(1),
            kill_at: BootInstant::from_nanos(u64::MAX),
        })
    };
    vec![
        grant(false, false),
        grant(true, false),
        grant(false, true),
        grant(true, true),
        ToGuard::Suspect { token: TOKEN },
        ToGuard::Confirm {
            token: FencingToken(i64::MIN),
        },
        ToGuard::Stop {
            token: TOKEN,
            kill_at: BootInstant::from_nanos(7),
        },
        ToGuard::Revoke { token: TOKEN },
        ToGuard::Finish { code: 75 },
        ToGuard::CannotBegin { code: 69 },
        ToGuard::Refuse {
            why: Refusal::Another,
        },
        ToGuard::Refuse { why: Refusal::User },
        ToGuard::Refuse { why: Refusal::Clock },
        ToGuard::Refuse {
            why: Refusal::Version,
        },
        ToGuard::Keep(SESSION),
        ToGuard::Keep(CONTENDER),
        ToGuard::Forget,
    ]
}

pub fn of_the_guard() -> Vec<FromGuard> {
    vec![
        FromGuard::Hello(Hello {
            pid: 1,
            instance: 7,
            is_first: false,
            has_ticket: false,
            tree: None,
            containment: Containment::Sweep,
            clock: 0,
        }),
        FromGuard::Hello(Hello {
            pid: 1,
            instance: u64::MAX,
            is_first: true,
            has_ticket: true,
            tree: Some(Tree {
                token: TOKEN,
                is_paused: true,
            }),
            containment: Containment::Pidns,
            clock: 4_026_531_834,
        }),
        FromGuard::Started {
            token: TOKEN,
            pid: u32::MAX,
        },
        FromGuard::Exited {
            token: TOKEN,
            code: 143,
        },
        FromGuard::Gone {
            token: TOKEN,
            code: None,
            had_sigterm: false,
        },
        FromGuard::Gone {
            token: TOKEN,
            code: Some(0),
            had_sigterm: true,
        },
        FromGuard::Paused { token: TOKEN },
        FromGuard::AtWork { token: TOKEN },
        FromGuard::Survivors {
            token: TOKEN,
            count: 3,
            pid: u32::MAX,
        },
        FromGuard::StartFailed {
            token: TOKEN,
            errno: 2,
        },
        FromGuard::EndWanted { signo: 15 },
        FromGuard::Kept(SESSION),
        FromGuard::Kept(CONTENDER),
        FromGuard::Deadline {
            token: TOKEN,
            kill_at: BootInstant::from_nanos(u64::MAX),
        },
    ]
}
