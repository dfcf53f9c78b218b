//! Clients that connect and say nothing, as many a second as are wanted; and a prober as kubelets are.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use lockkeeper_lock::BootInstant;

use crate::Host;

/// Connections that one host keeps open, more than any server has places for with a few hosts. Of more
/// it closes the oldest.
const KEPT: usize = 200;

/// A server that has no place lets clients wait in its kernel. This is how long one waits.
const CONNECT: Duration = Duration::from_millis(200);

/// How long a kubelet waits for the answer to a probe (`timeoutSeconds`, default 1).
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// A prober that takes longer to send its request was not let run by its own machine, and asked nobody. Less than half of
/// what it has for that in the worst flood (docs/architecture.md).
const LATE: Duration = Duration::from_millis(100);

/// How often it is asked here; a kubelet asks once a second at most.
const PROBE_PERIOD: Duration = Duration::from_millis(100);

/// Connections from one host to one port. Drop ends it.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

/// What became of the probes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probed {
    /// How long each took that was answered with 200.
    pub answered: Vec<Duration>,
    /// What became of the others.
    pub failed: Vec<String>,
    /// The most of these one after the other.
    pub in_a_row: usize,
    /// How many do not count: their prober was too late with its own request.
    pub late: usize,
}

impl Flood {
    /// Opens so many connections a second. Half of them say nothing at all, the others a part of a head.
    pub fn begin(host: &Host, to: SocketAddrV4, per_second: u32) -> Self {
        let (stop, opened) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let thread = std::thread::spawn({
            let (host, stop, opened) = (host.clone(), Arc::clone(&stop), Arc::clone(&opened));
            move || host.run(|| pour(to, Duration::from_secs(1) / per_second, &stop, &opened))
        });
        Self {
            stop,
            opened,
            thread: Some(thread),
        }
    }

    /// How many it has opened so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn pour(to: SocketAddrV4, period: Duration, stop: &AtomicBool, opened: &AtomicU64) {
    let mut kept = VecDeque::new();
    let mut next = BootInstant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_since(BootInstant::now()));
        next = next + period;
        let Ok(mut stream) = TcpStream::connect_timeout(&to.into(), CONNECT) else {
            continue;
        };
        let count = opened.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(2) {
            // That the server has closed it by now is what is expected of it.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: ");
        }
        kept.push_back(stream);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// Asks again and again, each time on a new connection and with a kubelet's patience, for so long.
///
/// # Errors
/// When the host cannot be entered.
pub fn probe(host: &Host, to: SocketAddrV4, path: &str, length: Duration) -> io::Result<Probed> {
    host.run(|| {
        let mut probed = Probed::default();
        let mut row = 0;
        let end = BootInstant::now() + length;
        while BootInstant::now() < end {
            let begun = BootInstant::now();
            let problem = match ask(to, path) {
                Ok(None) => {
                    probed.late += 1;
                    None
                }
                Ok(Some(answer)) if answer.starts_with("HTTP/1.1 200 ") => {
                    probed.answered.push(BootInstant::now() - begun);
                    row = 0;
                    None
                }
                Ok(Some(answer)) => Some(format!("answered {answer:?}")),
                // What a read says that has waited long enough (socket(7), SO_RCVTIMEO).
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    Some(format!("no answer within {PROBE_TIMEOUT:?}"))
                }
                Err(error) => Some(error.to_string()),
            };
            if let Some(problem) = problem {
                probed.failed.push(problem);
                row += 1;
                probed.in_a_row = probed.in_a_row.max(row);
            }
            std::thread::sleep((begun + PROBE_PERIOD).saturating_since(BootInstant::now()));
        }
        probed
    })
}

/// The answer; nothing when the request was sent too late to be one.
fn ask(to: SocketAddrV4, path: &str) -> io::Result<Option<String>> {
    let end = BootInstant::now() + PROBE_TIMEOUT;
    let left = || match end.saturating_since(BootInstant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok::<_, io::Error>(left),
    };
    let mut stream = TcpStream::connect_timeout(&to.into(), left()?)?;
    let connected = BootInstant::now();
    let sent = stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {to}\r\n\r\n").as_bytes());
    if BootInstant::now() - connected > LATE {
        return Ok(None);
    }
    sent?;
    let mut answer = Vec::new();
    loop {
        stream.set_read_timeout(Some(left()?))?;
        let mut chunk = [0; 4096];
        match stream.read(&mut chunk)? {
            0 => return Ok(Some(String::from_utf8_lossy(&answer).into_owned())),
            count => answer.extend_from_slice(&chunk[..count]),
        }
    }
}
