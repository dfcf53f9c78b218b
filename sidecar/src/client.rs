//! `lockkeeper status`, `wait`, `release`, `terminating` and `probe`: clients of the socket.

use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use lockkeeper_daemon::duration;
use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_lock::{BootInstant, LockState};
use serde::de::DeserializeOwned;

use crate::args::{OutputFormat, WaitFor};
use crate::probes::Kind;
use crate::probes::health::Order;
use crate::socket::Inside;
use crate::view::Snapshot;

pub mod exec;
pub(crate) mod request;

use request::Call;

/// A keeper that runs answers a question at once; after this time it hangs.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A keeper that sends no event for so long hangs: it sends a comment every 15 s.
const LONGEST_SILENCE: Duration = Duration::from_secs(40);

/// Time between two attempts to reach the keeper: it may be starting.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// What the keeper at `socket` says of its lock, as text or JSON without a line end.
///
/// # Errors
/// When no keeper answers.
pub fn status(socket: &Path, output: OutputFormat) -> Result<String, Failure> {
    let body = answer(socket, Call::Status, Some(ANSWER_TIMEOUT))?;
    match output {
        OutputFormat::Json => Ok(body),
        OutputFormat::Text => parse(&body).map(|snapshot: Snapshot| describe(&snapshot)),
    }
}

/// Calls `print` with what the keeper at `socket` says of its lock, and again after each change, until `print` fails.
/// A text ends with an empty line, JSON has one line.
///
/// # Errors
/// When no keeper answers, when it is gone or hangs, and what `print` returns.
pub fn watch(
    socket: &Path,
    output: OutputFormat,
    mut print: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut stream = events(socket, ANSWER_TIMEOUT)?;
    let timed = stream.get_ref().set_read_timeout(Some(LONGEST_SILENCE));
    timed.map_err(|error| Failure::unavailable(broken(socket, &error)))?;
    loop {
        match next(&mut stream) {
            None => {
                let shown = socket.display();
                return Err(Failure::unavailable(format!(
                    "the keeper on {shown} is gone, or hangs"
                )));
            }
            Some(Event::Nothing) => {}
            Some(Event::Lock(snapshot)) => {
                let snapshot = snapshot?;
                let text = match output {
                    OutputFormat::Text => describe(&snapshot) + "\n",
                    OutputFormat::Json => serde_json::to_string(&snapshot).map_err(Failure::software)?,
                };
                print(&(text + "\n"))?;
            }
        }
    }
}

/// Which keepers are trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Every process that serves the socket.
    Anybodys,
    /// A keeper of this user or of root.
    Own,
}

/// The same as an object.
///
/// # Errors
/// As [`status`], and when the process that serves the socket is not trusted.
pub(crate) fn snapshot(socket: &Path, word: Word) -> Result<Snapshot, Failure> {
    parse(&word.on(socket, Call::Status)?)
}

/// Asks the keeper at `socket` to stop its application and to release the lock, and waits for the
/// outcome, which is the answer in words.
///
/// # Errors
/// When no keeper answers, when the lock is not held, or when the release was not confirmed.
pub fn release(socket: &Path) -> Result<String, Failure> {
    // The keeper bounds the time: it knows how long the application may take to stop.
    answer(socket, Call::Release, None)?;
    Ok("the application was stopped and the lock released; its keeper queues again at the end".to_owned())
}

/// Tells the keeper at `socket` to leave the lock to expire though something has outlived SIGKILL.
///
/// # Errors
/// When no keeper answers, or nothing is known to have outlived it.
pub fn abandon_survivors(socket: &Path) -> Result<String, Failure> {
    answer(socket, Call::AbandonSurvivors, Some(ANSWER_TIMEOUT))?;
    Ok("the lock is left to expire; then others get it, even if the survivors still run".to_owned())
}

/// Whether this process is a part of the application of the keeper at `socket`.
///
/// # Errors
/// When no keeper answers, when it cannot tell, and when the process that serves the socket is not trusted.
pub(crate) fn is_inside(socket: &Path, word: Word) -> Result<bool, Failure> {
    let inside: Inside = parse(&word.on(socket, Call::Inside)?)?;
    Ok(inside.inside)
}

/// Tells the keeper at `socket` that its pod is ending.
///
/// # Errors
/// When no keeper answers.
pub fn terminating(socket: &Path) -> Result<String, Failure> {
    answer(socket, Call::Terminating, Some(ANSWER_TIMEOUT))?;
    Ok(
        "nothing is started any more; the application is stopped before the pod's grace period is over"
            .to_owned(),
    )
}

/// What the keeper at `socket` says about a probe or hook of its application.
///
/// # Errors
/// When no keeper answers.
pub fn probe(socket: &Path, kind: Kind) -> Result<Order, Failure> {
    // It may have to ask the application; a kubelet ends us when that takes too long.
    parse(&answer(socket, Call::Probe(kind), None)?)
}

/// Tells the keeper at `socket` that the application of a start has started.
///
/// # Errors
/// When no keeper answers.
pub fn tell_started(socket: &Path, start: u64) -> Result<(), Failure> {
    answer(socket, Call::Started(start), Some(ANSWER_TIMEOUT)).map(drop)
}

/// Waits until the lock of the keeper at `socket` is in a state, at most for `timeout`. It also waits for a keeper
/// that is not there yet or is being restarted, and then calls `notice` once.
///
/// # Errors
/// When the time is over, with what was seen last.
pub fn wait(
    socket: &Path,
    wait_for: WaitFor,
    timeout: Option<Duration>,
    mut notice: impl FnMut(&str),
) -> Result<(), Failure> {
    let end = timeout.map(|timeout| BootInstant::now() + timeout);
    let mut seen = None;
    let mut noticed = false;
    loop {
        let mut exit = Exit::TimedOut;
        match follow(socket, wait_for, end, &mut seen) {
            Ok(true) => return Ok(()),
            Ok(false) => {}
            Err(problem) => {
                exit = Exit::Unavailable;
                if !noticed && remaining(end) != Some(Duration::ZERO) {
                    notice(&format!("{problem}; waiting for it"));
                    noticed = true;
                }
                seen = Some(problem);
            }
        }
        let pause = remaining(end).map_or(RETRY_INTERVAL, |left| left.min(RETRY_INTERVAL));
        if pause.is_zero() {
            return Err(Failure::new(
                exit,
                format!(
                    "the lock was not {} within {}: {}",
                    wait_for.name(),
                    timeout.map(duration::format).unwrap_or_default(),
                    seen.as_deref().unwrap_or("the keeper said nothing"),
                ),
            ));
        }
        std::thread::sleep(pause);
    }
}

/// Reads events until the state is reached (true), the stream ends (false) or the time is over (false).
fn follow(
    socket: &Path,
    wait_for: WaitFor,
    end: Option<BootInstant>,
    seen: &mut Option<String>,
) -> Result<bool, String> {
    // With no time left one look is still allowed: `--timeout 0` asks for the state now.
    let patience = remaining(end).map(|left| left.max(Duration::from_millis(100)));
    let patience = patience.unwrap_or(ANSWER_TIMEOUT).min(ANSWER_TIMEOUT);
    let mut stream = events(socket, patience).map_err(|failure| failure.sentence)?;
    loop {
        let left = remaining(end);
        if seen.is_some() && left == Some(Duration::ZERO) {
            return Ok(false);
        }
        let patience = left
            .unwrap_or(Duration::MAX)
            .clamp(Duration::from_millis(100), LONGEST_SILENCE);
        let set = stream.get_ref().set_read_timeout(Some(patience));
        set.map_err(|error| broken(socket, &error))?;
        match next(&mut stream) {
            // A timeout, or a keeper that went away in the middle: the caller decides.
            None => return Ok(false),
            Some(Event::Nothing) => {}
            Some(Event::Lock(snapshot)) => {
                let snapshot = snapshot.map_err(|failure| failure.sentence)?;
                if wait_for.is_reached(&snapshot) {
                    return Ok(true);
                }
                *seen = Some(format!("it is {}", snapshot.explain()));
            }
        }
    }
}

/// The stream of events of the keeper at `socket`, which has to answer within `patience`.
fn events(socket: &Path, patience: Duration) -> Result<BufReader<UnixStream>, Failure> {
    let reply = request::connect(socket)
        .and_then(|stream| request::send(stream, socket, Call::Events, Some(patience)))
        .map_err(Failure::unavailable)?;
    match reply.status {
        200 => Ok(reply.stream),
        _ => Err(reply.into_failure(socket)),
    }
}

fn broken(socket: &Path, error: &io::Error) -> String {
    format!("the connection to {} failed: {error}", socket.display())
}

/// A line of the stream of events.
pub(crate) enum Event {
    /// A comment, or the line between two events.
    Nothing,
    /// The lock as it is from now on.
    Lock(Result<Box<Snapshot>, Failure>),
}

/// The next line; `None` at the end of the stream, and at a line that is longer than any of a keeper.
pub(crate) fn next(stream: &mut impl BufRead) -> Option<Event> {
    let mut line = String::new();
    match stream.by_ref().take(request::ANSWER_BYTES).read_line(&mut line) {
        Ok(0) | Err(_) => None,
        Ok(_) if !line.ends_with('\n') => None,
        Ok(_) => Some(
            line.strip_prefix("data: ")
                .map_or(Event::Nothing, |event| Event::Lock(parse(event))),
        ),
    }
}

/// The body of a good answer.
fn answer(socket: &Path, call: Call, timeout: Option<Duration>) -> Result<String, Failure> {
    answer_on(request::connect(socket), socket, call, timeout)
}

fn answer_on(
    stream: Result<UnixStream, String>,
    socket: &Path,
    call: Call,
    timeout: Option<Duration>,
) -> Result<String, Failure> {
    let reply = stream
        .and_then(|stream| request::send(stream, socket, call, timeout))
        .map_err(Failure::unavailable)?;
    if reply.status != 200 {
        return Err(reply.into_failure(socket));
    }
    reply.body(socket).map_err(Failure::unavailable)
}

fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(|error| {
        Failure::unavailable(format!(
            "the answer is not one of a keeper of this version: {error}"
        ))
    })
}

fn describe(snapshot: &Snapshot) -> String {
    let mut text = format!(
        "lock       {}\nstate      {} ({})\naccess     {}",
        snapshot.lock,
        snapshot.state.name(),
        snapshot.explain(),
        snapshot.access
    );
    if let Some(token) = snapshot.fencing_token {
        text += &format!("\ntoken      {token}");
    }
    if let Some(millis) = snapshot.remaining_millis {
        text += &format!(
            "\nremaining  {} until the application is killed, unless the lease is renewed",
            duration::format(Duration::from_millis(millis))
        );
    }
    text += &format!(
        "\nstop grace {}",
        duration::format(Duration::from_millis(snapshot.stop_budget_millis))
    );
    if let Some(millis) = snapshot.lease_millis {
        text += &format!(
            "\nlease      {} without a renewal, then the next contender may take our place",
            duration::format(Duration::from_millis(millis))
        );
    } else if snapshot.session.is_some() && (snapshot.is_queued() || snapshot.is_held()) {
        // Without a session the lock was left to its keeper by another one, and is still on its way.
        text += "\nlease      off: only the end of the session frees our place";
    }
    if let Some(of) = &snapshot.took_over {
        text += &format!(
            "\ntook over  from {}, which was silent for {}",
            of.whose(),
            duration::format(Duration::from_millis(of.silent_millis))
        );
    }
    if let Some(containment) = &snapshot.containment {
        text += &format!("\ncontained  by {containment}");
    }
    if let Some(session) = &snapshot.session {
        text += &format!("\nsession    {session}");
    }
    text
}

fn remaining(end: Option<BootInstant>) -> Option<Duration> {
    end.map(|end| end.saturating_since(BootInstant::now()))
}

// === impl Word ===

impl Word {
    /// The answer to a call.
    fn on(self, socket: &Path, call: Call) -> Result<String, Failure> {
        let stream = match self {
            Self::Anybodys => request::connect(socket),
            Self::Own => request::connect_to_own(socket),
        };
        answer_on(stream, socket, call, Some(ANSWER_TIMEOUT))
    }
}

// === impl WaitFor ===

impl WaitFor {
    /// What the user wrote.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Released => "released",
            Self::Queued => "queued",
        }
    }

    pub(crate) fn is_reached(self, snapshot: &Snapshot) -> bool {
        match self {
            Self::Held => snapshot.is_held(),
            // Not while it is being released: the application may still run.
            Self::Released => !snapshot.is_held() && snapshot.state != LockState::Releasing,
            Self::Queued => snapshot.is_queued() || snapshot.is_held(),
        }
    }
}
