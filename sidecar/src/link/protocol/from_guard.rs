//! The frames of the guard.

use lockkeeper_lock::{BootInstant, FencingToken};

use super::containment::Containment;
use super::frame::{Fields, Frame, FrameError, VERSION};
use super::ticket::TicketHalf;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromGuard {
    /// The first frame of every connection.
    Hello(Hello),
    /// After `Hello`: a half of what the keeper before this one has left. [`Hello::has_ticket`] announces both.
    Kept(TicketHalf),
    /// After `Hello`: when the guard will have stopped what runs, unless it gets another frame.
    Deadline {
        token: FencingToken,
        /// The end of its grant.
        kill_at: BootInstant,
    },
    /// The application was started, or a paused one was continued, under this token.
    Started {
        token: FencingToken,
        /// Process id of the application; 0 for a container, which the guard does not start.
        pid: u32,
    },
    /// The main process ended by itself and nothing of its tree is left.
    Exited {
        token: FencingToken,
        /// Its exit code, or 128 and the number of the signal that ended it.
        code: u8,
    },
    /// The guard stopped the tree, and nothing of it is left. Also the answer to a grant that came
    /// too late to start anything.
    Gone {
        token: FencingToken,
        /// How the main process ended, if it did before SIGKILL.
        code: Option<u8>,
        /// The guard sent SIGTERM before, and SIGKILL after that.
        had_sigterm: bool,
    },
    /// Every process of the tree was seen stopped, at the deadline of a grant with `pause`. What
    /// [`ToGuard::Suspect`](super::ToGuard::Suspect) stopped is not reported: it may be continued for many reasons.
    Paused { token: FencingToken },
    /// The guard is at work: it has sent SIGKILL, or SIGSTOP at the deadline of a grant with `pause`, and has not seen
    /// yet that nothing is left, or that nothing runs. A keeper kills a guard that is silent after its deadline,
    /// because it counts as stopped.
    AtWork { token: FencingToken },
    /// Something outlives SIGKILL, or may not be signalled. The guard keeps trying, and repeats this frame
    /// from time to time.
    Survivors {
        token: FencingToken,
        /// How many processes the last look found; 0 when it could not see everything.
        count: u32,
        /// The process id of one of them, in the guard's PID namespace; 0 when none was seen.
        pid: u32,
    },
    StartFailed {
        token: FencingToken,
        /// Why, as of `errno(3)`.
        errno: u32,
    },
    /// A user wants the guard to end, and sent it SIGTERM, SIGINT or SIGQUIT; or SIGHUP, unless an application runs
    /// that may handle SIGHUP differently.
    EndWanted { signo: u8 },
}

/// The identity of a guard, and its application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Process id of the guard, in its own PID namespace.
    pub pid: u32,
    /// Drawn at random by each guard when it starts, so that the keeper recognises the guard.
    pub instance: u64,
    /// The guard is the first process of its PID namespace: the kernel reports its end only after that of
    /// everything else in there (`zap_pid_ns_processes` in the kernel's `pid_namespace.c`).
    pub is_first: bool,
    /// What is running or paused; `None` when nothing is.
    pub tree: Option<Tree>,
    pub has_ticket: bool,
    pub containment: Containment,
    /// The [time namespace](crate::time_namespace) of the guard: instants mean the same to both in one alone.
    pub clock: u32,
}

/// An application, with all that it has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tree {
    pub token: FencingToken,
    /// It was stopped at its deadline.
    pub is_paused: bool,
}

const HELLO: u8 = 65;
const STARTED: u8 = 66;
const EXITED: u8 = 67;
const GONE: u8 = 68;
const PAUSED: u8 = 69;
const SURVIVORS: u8 = 70;
const START_FAILED: u8 = 71;
const END_WANTED: u8 = 72;
const AT_WORK: u8 = 73;
const KEPT_SESSION: u8 = 74;
const KEPT_CONTENDER: u8 = 75;
const DEADLINE: u8 = 76;

/// Flags of `Hello`. Bit 1 is free.
const IS_PAUSED: u8 = 1;
const IS_FIRST: u8 = 4;
const HAS_TICKET: u8 = 8;
/// Flags of `Gone`. With the first the argument is an exit code.
const HAS_CODE: u8 = 1;
const HAD_SIGTERM: u8 = 2;

impl FromGuard {
    pub fn encode(&self) -> Frame {
        let with_token = |kind, token: FencingToken, argument| Fields {
            kind,
            token: token.0,
            argument,
            ..Fields::default()
        };
        let fields = match *self {
            Self::Hello(hello) => Fields {
                flags: if hello.tree.is_some_and(|tree| tree.is_paused) {
                    IS_PAUSED
                } else {
                    0
                } | if hello.is_first { IS_FIRST } else { 0 }
                    | if hello.has_ticket { HAS_TICKET } else { 0 },
                version: VERSION,
                first: hello.instance,
                second: u64::from(hello.containment.number()) | u64::from(hello.clock) << 8,
                ..with_token(
                    HELLO,
                    hello.tree.map_or(FencingToken(0), |tree| tree.token),
                    hello.pid,
                )
            },
            Self::Kept(half) => half.fields(KEPT_SESSION, KEPT_CONTENDER),
            Self::Deadline { token, kill_at } => Fields {
                second: kill_at.as_nanos(),
                ..with_token(DEADLINE, token, 0)
            },
            Self::Started { token, pid } => with_token(STARTED, token, pid),
            Self::Exited { token, code } => with_token(EXITED, token, code.into()),
            Self::Gone {
                token,
                code,
                had_sigterm,
            } => Fields {
                flags: if code.is_some() { HAS_CODE } else { 0 } | if had_sigterm { HAD_SIGTERM } else { 0 },
                ..with_token(GONE, token, code.unwrap_or(0).into())
            },
            Self::Paused { token } => with_token(PAUSED, token, 0),
            Self::AtWork { token } => with_token(AT_WORK, token, 0),
            Self::Survivors { token, count, pid } => Fields {
                first: pid.into(),
                ..with_token(SURVIVORS, token, count)
            },
            Self::StartFailed { token, errno } => with_token(START_FAILED, token, errno),
            Self::EndWanted { signo } => with_token(END_WANTED, FencingToken(0), signo.into()),
        };
        fields.write()
    }

    /// Decodes `frame`.
    ///
    /// # Errors
    /// When it is not a frame that a guard of this release sends: close the connection.
    pub fn decode(frame: &Frame) -> Result<Self, FrameError> {
        let fields = Fields::read(frame)?;
        let token = FencingToken(fields.token);
        let decoded = match fields.kind {
            HELLO if fields.version != VERSION => return Err(FrameError::Version(fields.version)),
            HELLO => Self::Hello(Hello {
                pid: fields.argument,
                instance: fields.first,
                is_first: fields.flags & IS_FIRST != 0,
                has_ticket: fields.flags & HAS_TICKET != 0,
                tree: (fields.token != 0).then_some(Tree {
                    token,
                    is_paused: fields.flags & IS_PAUSED != 0,
                }),
                containment: Containment::with_number(fields.second.to_le_bytes()[0])
                    .ok_or(FrameError::Contents(HELLO))?,
                // Comparing with the encoded frame, below, refuses bytes above these.
                clock: (fields.second >> 8) as u32,
            }),
            KEPT_SESSION => Self::Kept(TicketHalf::session(&fields)),
            KEPT_CONTENDER => Self::Kept(TicketHalf::contender(&fields)),
            DEADLINE => Self::Deadline {
                token,
                kill_at: BootInstant::from_nanos(fields.second),
            },
            STARTED => Self::Started {
                token,
                pid: fields.argument,
            },
            EXITED => Self::Exited {
                token,
                code: fields.byte()?,
            },
            GONE => {
                let code = fields.byte()?;
                Self::Gone {
                    token,
                    code: (fields.flags & HAS_CODE != 0).then_some(code),
                    had_sigterm: fields.flags & HAD_SIGTERM != 0,
                }
            }
            PAUSED => Self::Paused { token },
            AT_WORK => Self::AtWork { token },
            SURVIVORS => Self::Survivors {
                token,
                count: fields.argument,
                pid: u32::try_from(fields.first).map_err(|_| FrameError::Contents(SURVIVORS))?,
            },
            START_FAILED => Self::StartFailed {
                token,
                errno: fields.argument,
            },
            END_WANTED => Self::EndWanted {
                signo: fields.byte()?,
            },
            kind => return Err(FrameError::Kind(kind)),
        };
        // A frame with anything beyond what its kind defines is not understood.
        if decoded.encode() != *frame {
            return Err(FrameError::Contents(fields.kind));
        }
        Ok(decoded)
    }
}
