//! The events of one history, drawn from its seed.

use super::network::{MS, Time};

/// The main subject of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Healthy, until a link is cut at a random moment.
    Cut,
    /// A server, or one of its threads, is paused and is cut off about when it wakes.
    PauseThenCut,
    /// A late ping loop, writes so early that a rule without slack takes them for a proof, and a cut right after an
    /// answer.
    EarlyWitness,
    /// The same with late answers.
    LateAnswer,
    /// A new leader, while an old one continues for a while without its quorum.
    NewLeader,
    /// The client was away for about as long as its session lasts, comes back while the leader ends sessions, and is
    /// cut off for good soon after.
    Lapsed,
    /// Everything at random.
    Storm,
}

impl Profile {
    pub const ALL: [Self; 7] = [
        Self::Cut,
        Self::PauseThenCut,
        Self::EarlyWitness,
        Self::LateAnswer,
        Self::NewLeader,
        Self::Lapsed,
        Self::Storm,
    ];
}

/// The threads that a pause stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paused {
    /// All threads, as a garbage collection or SIGSTOP does.
    Process,
    /// Thread A of a follower: takes messages from the leader.
    FromLeader,
    /// Thread B of a follower: sends messages to the leader.
    Forward,
}

/// Selects a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// The server that the client is connected to.
    Mine,
    Leader,
    Any,
}

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    Pause {
        which: Which,
        paused: Paused,
        length: Time,
    },
    /// Between the client's server and its leader.
    CutServer { length: Time, up: bool, down: bool },
    /// Between the client and its server.
    CutClient { length: Time, up: bool, down: bool },
    /// The client takes its session to another server by itself.
    Move,
    /// The client closes its connection, and takes its session to a server again after `length`.
    Away { length: Time },
    /// The others elect a new leader. The old one, and with `mine` the client's server, do not notice it for
    /// `unnoticed`.
    NewLeader {
        election: Time,
        unnoticed: Time,
        mine: bool,
    },
}

/// When the last fault begins. The client does not recover from it.
#[derive(Clone, Copy, Debug)]
pub enum Trigger {
    At,
    /// When the client's server next answers a write, plus this time.
    AfterAnswer(Time),
}

#[derive(Debug)]
pub struct Plan {
    pub servers: usize,
    pub tick: Time,
    pub session_timeout: Time,
    /// Moment zero on the leader's clock: it decides where a tick begins.
    pub phase: Time,
    pub renew_interval: Time,
    /// Whether the client sends the next renewal before the last one is answered.
    pub pipelined: bool,
    /// Times between an answer and the next write, in turn, for a client that also writes for other reasons than to
    /// renew. Replaces `renew_interval` unless empty.
    pub rhythm: Vec<Time>,
    /// Share of answers after which the client writes again at once.
    pub burst: f64,
    /// Nanoseconds of the client's clock in a second of true time.
    pub clock_rate: f64,
    /// Whether the client is connected to the leader at first.
    pub on_leader: bool,
    /// How late the leader's ping loop may be.
    pub ping_jitter: Time,
    /// Share of late pings; the others are nearly on time.
    pub ping_late: f64,
    /// How long after the leader's process wakes its ping loop may still sleep.
    pub ping_lag: Time,
    /// How long the expirer takes at most to mark a session whose bucket it has taken.
    pub mark_delay: Time,
    /// Share of touches during which a follower's thread stops between reading its table and writing to it, and for how
    /// long at most.
    pub torn_touches: (f64, Time),
    /// Share of messages that are late, and by how much at most.
    pub spikes: (f64, Time),
    /// The same for messages between client and server.
    pub client_spikes: (f64, Time),
    /// Whether the client tries another server if it gets no answers.
    pub recovers: bool,
    pub faults: Vec<(Time, Fault)>,
    pub last: (Time, Trigger, Fault),
}

/// The largest share by which clocks differ in rate.
pub const RATE_ERROR: f64 = 0.01;

pub fn between(rng: &mut fastrand::Rng, low: Time, high: Time) -> Time {
    if low >= high { low } else { rng.u64(low..=high) }
}

fn share(rng: &mut fastrand::Rng, of: Time, low: f64, high: f64) -> Time {
    (of as f64 * (low + (high - low) * rng.f64())) as Time
}

impl Plan {
    pub fn new(rng: &mut fastrand::Rng, profile: Profile, slack: Time) -> Self {
        let tick = [500, 1_000, 2_000][rng.usize(..3)] * MS;
        let session_timeout = share(rng, tick, 4.0, 8.0) / MS * MS;
        let age = tick / 2 + slack;
        let last_at = session_timeout + share(rng, session_timeout, 0.0, 1.5);
        let storm = profile == Profile::Storm;
        let bursts = storm && rng.bool();
        let mut plan = Self {
            servers: if rng.bool() { 3 } else { 5 },
            tick,
            session_timeout,
            phase: between(rng, 0, 10 * tick),
            renew_interval: share(rng, age, 0.25, 1.6),
            pipelined: rng.bool(),
            rhythm: Vec::new(),
            burst: if bursts { 0.7 * rng.f64() } else { 0.0 },
            // The ends of the promised range are the most interesting.
            clock_rate: 1.0
                + RATE_ERROR
                    * match rng.u8(..4) {
                        0 => -1.0,
                        1 => 1.0,
                        _ => rng.f64() * 2.0 - 1.0,
                    },
            on_leader: rng.u8(..8) == 0,
            // Of the slack, one per cent of the age goes to the client's clock.
            ping_jitter: slack - (age as f64 * RATE_ERROR) as Time - MS,
            ping_late: if storm { rng.f64() } else { 0.05 },
            ping_lag: 0,
            // Again the client's clock may be one per cent fast.
            mark_delay: slack - (slack as f64 * RATE_ERROR) as Time - MS,
            torn_touches: (0.0, 0),
            spikes: (
                if storm { 0.05 * rng.f64() } else { 0.01 },
                share(rng, tick, 0.0, 0.5),
            ),
            client_spikes: (
                if storm { 0.2 * rng.f64() } else { 0.01 },
                share(rng, tick, 0.0, 1.0),
            ),
            recovers: profile != Profile::PauseThenCut && rng.bool(),
            faults: Vec::new(),
            last: (last_at, Trigger::At, last_fault(rng)),
        };
        match profile {
            Profile::Cut => {}
            Profile::PauseThenCut => plan.pause_then_cut(rng, last_at),
            Profile::EarlyWitness => plan.write_in_a_rhythm(rng, tick / 2, slack),
            Profile::LateAnswer => {
                plan.write_in_a_rhythm(rng, age, slack / 10);
                plan.client_spikes = (0.4 * rng.f64(), share(rng, tick, 0.5, 2.0));
            }
            Profile::NewLeader => {
                let at = share(rng, last_at, 0.3, 1.0);
                plan.faults.push((at, new_leader(rng, tick)));
            }
            Profile::Lapsed => plan.come_back(rng, last_at, slack),
            Profile::Storm => {
                for _ in 0..rng.usize(1..8) {
                    let fault = any_fault(rng, tick);
                    plan.faults.push((between(rng, 0, last_at), fault));
                }
                if rng.bool() {
                    plan.last.1 = Trigger::AfterAnswer(between(rng, 0, 3 * MS));
                }
            }
        }
        plan
    }

    /// A pause, a write, another one after `soonest` and up to a quarter of `slack`, a last one at once; and a cut
    /// about when one of them is answered.
    fn write_in_a_rhythm(&mut self, rng: &mut fastrand::Rng, soonest: Time, slack: Time) {
        self.on_leader = false;
        self.pipelined = false;
        self.rhythm = vec![
            share(rng, self.tick, 0.5, 2.0),
            soonest + between(rng, 0, slack / 4),
            between(rng, 0, 2 * MS),
        ];
        self.ping_late = 1.0;
        self.spikes.0 = 0.0;
        self.client_spikes.0 = 0.0;
        self.last.1 = Trigger::AfterAnswer(between(rng, 0, 2 * MS));
        self.last.2 = cut_server(rng);
    }

    /// The client is away until about the moment at which the leader ends the session; then it writes over the new
    /// connection, and again some time later.
    fn come_back(&mut self, rng: &mut fastrand::Rng, leaves: Time, slack: Time) {
        self.pipelined = false;
        self.recovers = false;
        let length = self.session_timeout + between(rng, 0, 3 * self.tick / 2);
        self.faults.push((leaves, Fault::Away { length }));
        self.rhythm = vec![between(rng, 0, 2 * slack)];
        self.last.0 = leaves + length;
        self.last.1 = Trigger::AfterAnswer(between(rng, 0, 3 * slack));
    }

    fn pause_then_cut(&mut self, rng: &mut fastrand::Rng, wakes: Time) {
        self.on_leader = false;
        let length = share(rng, self.tick, 0.2, 2.5);
        let paused = paused(rng);
        let which = if rng.u8(..5) == 0 {
            Which::Leader
        } else {
            Which::Mine
        };
        self.faults.push((
            wakes - length,
            Fault::Pause {
                which,
                paused,
                length,
            },
        ));
        if rng.bool() {
            // A second pause close to it: the two threads do not wake together.
            let start = between(rng, wakes - length, wakes);
            let other = self::paused(rng);
            let length = wakes - start + between(rng, 0, 20 * MS);
            self.faults.push((
                start,
                Fault::Pause {
                    which: Which::Mine,
                    paused: other,
                    length,
                },
            ));
        }
        self.last.0 = wakes + between(rng, 0, 10 * MS);
        if rng.bool() {
            self.last.1 = Trigger::AfterAnswer(between(rng, 0, 2 * MS));
            self.last.0 = wakes - between(rng, 0, 5 * MS);
        }
        self.last.2 = cut_server(rng);
    }
}

fn paused(rng: &mut fastrand::Rng) -> Paused {
    [Paused::Process, Paused::FromLeader, Paused::Forward][rng.usize(..3)]
}

fn cut_server(rng: &mut fastrand::Rng) -> Fault {
    let way = rng.u8(..4);
    Fault::CutServer {
        length: super::network::NEVER,
        up: way != 0,
        down: way != 1,
    }
}

fn last_fault(rng: &mut fastrand::Rng) -> Fault {
    match rng.u8(..4) {
        0 => Fault::CutClient {
            length: super::network::NEVER,
            up: true,
            down: rng.bool(),
        },
        _ => cut_server(rng),
    }
}

fn new_leader(rng: &mut fastrand::Rng, tick: Time) -> Fault {
    Fault::NewLeader {
        election: share(rng, tick, 0.0, 0.5),
        unnoticed: share(rng, tick, 0.0, 5.0),
        mine: rng.bool(),
    }
}

fn any_fault(rng: &mut fastrand::Rng, tick: Time) -> Fault {
    let (up, down) = [(true, true), (true, false), (false, true)][rng.usize(..3)];
    match rng.u8(..11) {
        0..5 => Fault::Pause {
            which: [Which::Mine, Which::Leader, Which::Any][rng.usize(..3)],
            paused: paused(rng),
            length: share(rng, tick, 0.0, 1.5),
        },
        5 | 6 => Fault::CutServer {
            length: share(rng, tick, 0.0, 2.0),
            up,
            down,
        },
        7 => Fault::CutClient {
            length: share(rng, tick, 0.0, 2.0),
            up,
            down,
        },
        8 => Fault::Move,
        9 => Fault::Away {
            length: share(rng, tick, 0.0, 10.0),
        },
        _ => new_leader(rng, tick),
    }
}
