//! The frames of the keeper.

use lockkeeper_lock::{BootInstant, FencingToken};

use super::frame::{Fields, Frame, FrameError};
use super::ticket::TicketHalf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGuard {
    /// The application may run until the instants of this grant.
    Grant(Grant),
    /// The connection to the ensemble is in doubt: SIGSTOP the tree (`onSuspect: Pause`). The
    /// deadlines go on meanwhile.
    Suspect { token: FencingToken },
    /// The same session is confirmed: SIGCONT what [`ToGuard::Suspect`] stopped.
    Confirm { token: FencingToken },
    /// SIGTERM now, SIGKILL at `kill_at` or at the deadline, whichever is earlier.
    Stop {
        token: FencingToken,
        /// When what is left gets SIGKILL.
        kill_at: BootInstant,
    },
    /// SIGKILL to everything now: a user has deleted the contender.
    Revoke { token: FencingToken },
    /// Stop what is left as by [`ToGuard::Revoke`], then exit with this code.
    Finish {
        /// Exit code of the guard.
        code: u8,
    },
    /// The keeper has failed before it could decide anything. The guard of a first keeper exits with this code; the guard of a
    /// later one keeps what an earlier keeper has granted or stopped.
    CannotBegin {
        /// Exit code of the guard.
        code: u8,
    },
    /// A half of what the next keeper needs to go on with the contender. The guard keeps it, and tells it after its
    /// `Hello`.
    Keep(TicketHalf),
    /// Forget that: the lock is given up.
    Forget,
    /// The keeper does not take this guard, and closes the connection.
    Refuse { why: Refusal },
}

/// Why a keeper does not take a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another guard is connected, or its process has not ended.
    Another,
    /// The guard runs as a user that may not guard (`--guard-user`).
    User,
    /// The guard reads another clock than the keeper: [`Hello::clock`](super::Hello::clock).
    Clock,
    /// The guard speaks another version of the protocol: [`VERSION`](super::frame::VERSION). Every version writes this
    /// refusal in the same way.
    Version,
}

/// The right to run until two instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    pub token: FencingToken,
    /// The keeper counts its grants from 1 on, and begins anew after 2^32. On one connection the newest
    /// one counts, whether its deadlines are later or earlier; an older one is ignored.
    pub generation: u32,
    /// Start the application if none is running. Grants without it only move the deadlines.
    pub start: bool,
    /// SIGSTOP the tree at `kill_at` instead of ending it (`onLoss: Pause`). There is no SIGTERM
    /// at `term_at` then.
    pub pause: bool,
    /// When the application gets SIGTERM. Nothing starts after it.
    pub term_at: BootInstant,
    /// When everything that is left gets SIGKILL, or SIGSTOP with `pause`.
    pub kill_at: BootInstant,
}

const GRANT: u8 = 1;
const SUSPECT: u8 = 2;
const CONFIRM: u8 = 3;
const STOP: u8 = 4;
const REVOKE: u8 = 5;
const FINISH: u8 = 6;
const REFUSE: u8 = 7;
const KEEP_SESSION: u8 = 8;
const KEEP_CONTENDER: u8 = 9;
const FORGET: u8 = 10;
const CANNOT_BEGIN: u8 = 11;

/// Flags of `Grant`.
const START: u8 = 1;
const PAUSE: u8 = 2;
/// Arguments of `Refuse`.
const BY_ANOTHER: u32 = 1;
const BY_USER: u32 = 2;
const BY_CLOCK: u32 = 3;
const BY_VERSION: u32 = 4;
impl ToGuard {
    pub fn encode(&self) -> Frame {
        let fields = match *self {
            Self::Grant(grant) => Fields {
                kind: GRANT,
                flags: if grant.start { START } else { 0 } | if grant.pause { PAUSE } else { 0 },
                argument: grant.generation,
                token: grant.token.0,
                first: grant.term_at.as_nanos(),
                second: grant.kill_at.as_nanos(),
                ..Fields::default()
            },
            Self::Suspect { token } => Fields {
                kind: SUSPECT,
                token: token.0,
                ..Fields::default()
            },
            Self::Confirm { token } => Fields {
                kind: CONFIRM,
                token: token.0,
                ..Fields::default()
            },
            Self::Stop { token, kill_at } => Fields {
                kind: STOP,
                token: token.0,
                second: kill_at.as_nanos(),
                ..Fields::default()
            },
            Self::Revoke { token } => Fields {
                kind: REVOKE,
                token: token.0,
                ..Fields::default()
            },
            Self::Finish { code } => Fields {
                kind: FINISH,
                argument: code.into(),
                ..Fields::default()
            },
            Self::CannotBegin { code } => Fields {
                kind: CANNOT_BEGIN,
                argument: code.into(),
                ..Fields::default()
            },
            Self::Keep(half) => half.fields(KEEP_SESSION, KEEP_CONTENDER),
            Self::Forget => Fields {
                kind: FORGET,
                ..Fields::default()
            },
            Self::Refuse { why } => Fields {
                kind: REFUSE,
                argument: match why {
                    Refusal::Another => BY_ANOTHER,
                    Refusal::User => BY_USER,
                    Refusal::Clock => BY_CLOCK,
                    Refusal::Version => BY_VERSION,
                },
                ..Fields::default()
            },
        };
        fields.write()
    }

    /// Decodes `frame`.
    ///
    /// # Errors
    /// When it is not a frame that a keeper of this release sends: close the connection.
    pub fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let fields = Fields::read(frame)?;
        let token = FencingToken(fields.token);
        let first = BootInstant::from_nanos(fields.first);
        let second = BootInstant::from_nanos(fields.second);
        let decoded = match fields.kind {
            GRANT => Self::Grant(Grant {
                token,
                generation: fields.argument,
                start: fields.flags & START != 0,
                pause: fields.flags & PAUSE != 0,
                term_at: first,
                kill_at: second,
            }),
            SUSPECT => Self::Suspect { token },
            CONFIRM => Self::Confirm { token },
            STOP => Self::Stop {
                token,
                kill_at: second,
            },
            REVOKE => Self::Revoke { token },
            FINISH => Self::Finish { code: fields.byte()? },
            CANNOT_BEGIN => Self::CannotBegin { code: fields.byte()? },
            KEEP_SESSION => Self::Keep(TicketHalf::session(&fields)),
            KEEP_CONTENDER => Self::Keep(TicketHalf::contender(&fields)),
            FORGET => Self::Forget,
            REFUSE => Self::Refuse {
                why: match fields.argument {
                    BY_ANOTHER => Refusal::Another,
                    BY_USER => Refusal::User,
                    BY_CLOCK => Refusal::Clock,
                    BY_VERSION => Refusal::Version,
                    _ => return Err(FrameError::Contents(REFUSE)),
                },
            },
            kind => return Err(FrameError::Kind(kind)),
        };
        // In `Hello` a token of 0 means that nothing runs, so no application may run under it.
        let without_token =
            ![FINISH, CANNOT_BEGIN, REFUSE, FORGET].contains(&fields.kind) && fields.token == 0;
        // A frame with anything beyond what its kind defines is not understood.
        if without_token || decoded.encode() != *frame {
            return Err(FrameError::Contents(fields.kind));
        }
        Ok(decoded)
    }
}
