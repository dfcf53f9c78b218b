//! What keeper and guard say to each other: fixed frames of 32 bytes over a Unix stream socket.
//!
//! | bytes | content (little-endian) |
//! |---|---|
//! | 0 | kind |
//! | 1 | flags |
//! | 2 | protocol version (only in `Hello`, else 0) |
//! | 3 | 0 |
//! | 4..8 | argument: a process id, an exit code, an errno, a signal, a number of processes or the generation of a grant |
//! | 8..16 | fencing token; 0 is none |
//! | 16..24, 24..32 | two instants, nanoseconds of `CLOCK_BOOTTIME`; in `Hello` the first is the guard's instance, in `Survivors` a process id |
//! | 24 | in `Hello`: what holds the application together; 0 is unknown |
//! | 25..29 | in `Hello`: the time namespace whose clock the guard reads; 0 where there is none |
//!
//! Both ends are on one machine and of one release, so there is nothing to negotiate: what is not
//! understood closes the connection and is never acted on.

#[cfg(test)]
mod tests;

use lockkeeper_lock::{BootInstant, FencingToken};

use super::containment::Containment;

/// Bytes of one frame.
pub const FRAME_LEN: usize = 32;

/// Version of this protocol, the third byte of [`FromGuard::Hello`].
pub const VERSION: u8 = 3;

/// One frame as it goes over the socket.
pub type Frame = [u8; FRAME_LEN];

/// From the keeper to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGuard {
    /// The application may run until the instants of this grant.
    Grant(Grant),
    /// The connection to the ensemble is in doubt: SIGSTOP the tree (`onSuspect: Pause`). The
    /// deadlines go on meanwhile.
    Suspect {
        /// The token under which the tree runs.
        token: FencingToken,
    },
    /// The same session is confirmed: SIGCONT what [`ToGuard::Suspect`] stopped.
    Confirm {
        /// The token under which the tree runs.
        token: FencingToken,
    },
    /// SIGTERM now, SIGKILL at `kill_at` or at the deadline, whichever is earlier.
    Stop {
        /// The token under which the tree runs.
        token: FencingToken,
        /// When what is left gets SIGKILL.
        kill_at: BootInstant,
    },
    /// SIGKILL to everything now: somebody deleted the contender.
    Revoke {
        /// The token under which the tree runs.
        token: FencingToken,
    },
    /// Stop what is left as by [`ToGuard::Revoke`], then exit with this code.
    Finish {
        /// Exit code of the guard.
        code: u8,
    },
    /// The keeper does not take this guard, and closes the connection.
    Refuse {
        /// Why.
        why: Refusal,
    },
}

/// Why a keeper does not take a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another guard is connected, or its process has not ended.
    Another,
    /// The guard's user is none of those that may guard (`--guard-user`).
    User,
    /// The guard's clock is another one than the keeper's: [`Hello::clock`].
    Clock,
}

/// The right to run until two instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The token of the lock that is held.
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

/// From the guard to the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FromGuard {
    /// The first frame of every connection: what the guard has.
    Hello(Hello),
    /// The application was started, or a paused one goes on, under this token.
    Started {
        /// The token of the grant.
        token: FencingToken,
        /// Process id of the application; 0 for a container, which the guard does not start.
        pid: u32,
    },
    /// The main process ended by itself and nothing of its tree is left.
    Exited {
        /// The token under which it ran.
        token: FencingToken,
        /// Its exit code, or 128 and the number of the signal that ended it.
        code: u8,
    },
    /// The guard stopped the tree, and nothing of it is left. Also the answer to a grant that came
    /// too late to start anything.
    Gone {
        /// The token under which it ran.
        token: FencingToken,
        /// How the main process ended, if it did before SIGKILL.
        code: Option<u8>,
    },
    /// Every process of the tree was seen stopped, at the deadline of a grant with `pause`. What
    /// [`ToGuard::Suspect`] stopped is not reported: it may go on for all sorts of reasons.
    Paused {
        /// The token under which it ran.
        token: FencingToken,
    },
    /// The guard is at work: it has sent SIGKILL, or SIGSTOP at the deadline of a grant with `pause`, and not yet seen
    /// that nothing is left, or goes on. A keeper that hears nothing of a guard after its deadline takes it for
    /// stopped, and kills it.
    AtWork {
        /// The token under which the tree ran.
        token: FencingToken,
    },
    /// Something outlives SIGKILL, or may not be signalled. The guard goes on trying, and says it again
    /// from time to time.
    Survivors {
        /// The token under which it ran.
        token: FencingToken,
        /// How many processes the last look found; 0 when it could not see everything.
        count: u32,
        /// The process id of one of them, in the guard's PID namespace; 0 when none was seen.
        pid: u32,
    },
    /// The application could not be started.
    StartFailed {
        /// The token of the grant.
        token: FencingToken,
        /// Why, as of `errno(3)`.
        errno: u32,
    },
    /// A user sent the guard SIGTERM, SIGINT, SIGHUP or SIGQUIT.
    Signal {
        /// Its number.
        signo: u8,
    },
}

/// Who a guard is, and what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Process id of the guard, in its own PID namespace.
    pub pid: u32,
    /// Drawn at random by each guard when it starts: by this a keeper knows it again.
    pub instance: u64,
    /// The guard is the first process of its PID namespace: the kernel reports its end only after that of
    /// everything else in there (`zap_pid_ns_processes` in the kernel's `pid_namespace.c`).
    pub is_first: bool,
    /// The token of what is running or paused; `None` when nothing is.
    pub token: Option<FencingToken>,
    /// The tree was stopped at its deadline.
    pub paused: bool,
    /// What holds the application together; `None` is a guard that does not say.
    pub containment: Option<Containment>,
    /// The [time namespace](crate::time_namespace) of the guard: instants mean the same to both in one alone.
    pub clock: u32,
}

/// A frame that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The kind is not one of this direction.
    #[error("unknown frame kind {0}: are keeper and guard of one release?")]
    Kind(u8),
    /// Flags, a reserved byte or the argument are not what this kind may have.
    #[error("a frame of kind {0} with contents that it cannot have: are keeper and guard of one release?")]
    Contents(u8),
    /// The guard speaks another version.
    #[error("the guard speaks version {0} of the protocol, the keeper version {VERSION}")]
    Version(u8),
}

const GRANT: u8 = 1;
const SUSPECT: u8 = 2;
const CONFIRM: u8 = 3;
const STOP: u8 = 4;
const REVOKE: u8 = 5;
const FINISH: u8 = 6;
const REFUSE: u8 = 7;

const HELLO: u8 = 65;
const STARTED: u8 = 66;
const EXITED: u8 = 67;
const GONE: u8 = 68;
const PAUSED: u8 = 69;
const SURVIVORS: u8 = 70;
const START_FAILED: u8 = 71;
const SIGNAL: u8 = 72;
const AT_WORK: u8 = 73;

/// Flags of `Grant`.
const START: u8 = 1;
const PAUSE: u8 = 2;
/// Flags of `Hello`. Bit 1 is free.
const IS_PAUSED: u8 = 1;
const IS_FIRST: u8 = 4;
/// Arguments of `Refuse`.
const BY_ANOTHER: u32 = 1;
const BY_USER: u32 = 2;
const BY_CLOCK: u32 = 3;
/// Flag of `Gone`: the argument is an exit code.
const HAS_CODE: u8 = 1;

/// The fields of a frame before they mean anything.
#[derive(Default)]
struct Fields {
    kind: u8,
    flags: u8,
    version: u8,
    argument: u32,
    token: i64,
    first: u64,
    second: u64,
}

impl ToGuard {
    /// The bytes of this frame.
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
            Self::Refuse { why } => Fields {
                kind: REFUSE,
                argument: match why {
                    Refusal::Another => BY_ANOTHER,
                    Refusal::User => BY_USER,
                    Refusal::Clock => BY_CLOCK,
                },
                ..Fields::default()
            },
        };
        fields.write()
    }

    /// What `frame` says.
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
            REFUSE => Self::Refuse {
                why: match fields.argument {
                    BY_ANOTHER => Refusal::Another,
                    BY_USER => Refusal::User,
                    BY_CLOCK => Refusal::Clock,
                    _ => return Err(FrameError::Contents(REFUSE)),
                },
            },
            kind => return Err(FrameError::Kind(kind)),
        };
        // A token of 0 is how `Hello` says "nothing": nobody may run under it.
        let without_token = ![FINISH, REFUSE].contains(&fields.kind) && fields.token == 0;
        // Whatever else stands in it is not understood.
        if without_token || decoded.encode() != *frame {
            return Err(FrameError::Contents(fields.kind));
        }
        Ok(decoded)
    }
}

impl FromGuard {
    /// The bytes of this frame.
    pub fn encode(&self) -> Frame {
        let with_token = |kind, token: FencingToken, argument| Fields {
            kind,
            token: token.0,
            argument,
            ..Fields::default()
        };
        let fields = match *self {
            Self::Hello(hello) => Fields {
                flags: if hello.paused { IS_PAUSED } else { 0 } | if hello.is_first { IS_FIRST } else { 0 },
                version: VERSION,
                first: hello.instance,
                second: u64::from(hello.containment.map_or(0, Containment::number))
                    | u64::from(hello.clock) << 8,
                ..with_token(HELLO, hello.token.unwrap_or(FencingToken(0)), hello.pid)
            },
            Self::Started { token, pid } => with_token(STARTED, token, pid),
            Self::Exited { token, code } => with_token(EXITED, token, code.into()),
            Self::Gone { token, code } => Fields {
                flags: if code.is_some() { HAS_CODE } else { 0 },
                ..with_token(GONE, token, code.unwrap_or(0).into())
            },
            Self::Paused { token } => with_token(PAUSED, token, 0),
            Self::AtWork { token } => with_token(AT_WORK, token, 0),
            Self::Survivors { token, count, pid } => Fields {
                first: pid.into(),
                ..with_token(SURVIVORS, token, count)
            },
            Self::StartFailed { token, errno } => with_token(START_FAILED, token, errno),
            Self::Signal { signo } => with_token(SIGNAL, FencingToken(0), signo.into()),
        };
        fields.write()
    }

    /// What `frame` says.
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
                token: (fields.token != 0).then_some(token),
                paused: fields.flags & IS_PAUSED != 0,
                containment: fields.containment()?,
                // What stands above it is refused below.
                clock: (fields.second >> 8) as u32,
            }),
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
            SIGNAL => Self::Signal {
                signo: fields.byte()?,
            },
            kind => return Err(FrameError::Kind(kind)),
        };
        // Whatever else stands in it is not understood.
        if decoded.encode() != *frame {
            return Err(FrameError::Contents(fields.kind));
        }
        Ok(decoded)
    }
}

impl Fields {
    fn write(&self) -> Frame {
        let mut frame = [0; FRAME_LEN];
        frame[0] = self.kind;
        frame[1] = self.flags;
        frame[2] = self.version;
        frame[4..8].copy_from_slice(&self.argument.to_le_bytes());
        frame[8..16].copy_from_slice(&self.token.to_le_bytes());
        frame[16..24].copy_from_slice(&self.first.to_le_bytes());
        frame[24..32].copy_from_slice(&self.second.to_le_bytes());
        frame
    }

    fn read(frame: &Frame) -> Result<Self, FrameError> {
        if frame[3] != 0 {
            return Err(FrameError::Contents(frame[0]));
        }
        let eight = |at: usize| -> [u8; 8] { std::array::from_fn(|i| frame[at + i]) };
        Ok(Self {
            kind: frame[0],
            flags: frame[1],
            version: frame[2],
            argument: u32::from_le_bytes(std::array::from_fn(|i| frame[4 + i])),
            token: i64::from_le_bytes(eight(8)),
            first: u64::from_le_bytes(eight(16)),
            second: u64::from_le_bytes(eight(24)),
        })
    }

    /// Byte 24 of `Hello`.
    fn containment(&self) -> Result<Option<Containment>, FrameError> {
        let [number, ..] = self.second.to_le_bytes();
        let known = Containment::ALL
            .into_iter()
            .find(|known| known.number() == number);
        match (number, known) {
            (0, _) | (_, Some(_)) => Ok(known),
            (_, None) => Err(FrameError::Contents(self.kind)),
        }
    }

    /// The argument, where it is an exit code or a signal.
    fn byte(&self) -> Result<u8, FrameError> {
        u8::try_from(self.argument).map_err(|_| FrameError::Contents(self.kind))
    }
}
