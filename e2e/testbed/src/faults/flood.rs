//! Clients that connect and send no request, at a given rate; and a prober that behaves like a kubelet.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::Host;
use crate::clock::since_boot;

/// Connections that one host keeps open: with a few hosts, more than any server has places for. Beyond this
/// number a host closes its oldest.
const KEPT: usize = 200;

/// How long a client waits to connect. A server without a free place lets clients wait in its kernel.
const CONNECT: Duration = Duration::from_millis(200);

/// How long a kubelet waits for the answer to a probe (`timeoutSeconds`, default 1).
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// If a prober takes longer to send its request, its own machine did not schedule it, and the probe does not
/// count. Less than half of the time that it has for that in the worst flood (docs/architecture.md).
const LATE: Duration = Duration::from_millis(100);

/// Time between two probes here; a kubelet probes once a second at most.
const PROBE_PERIOD: Duration = Duration::from_millis(100);

/// Connections from one host to one port. Drop ends it.
#[derive(Debug)]
pub struct Flood {
    stop: Arc<AtomicBool>,
    opened: Arc<AtomicU64>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Probed {
    /// Durations of the probes that were answered with 200.
    pub answered: Vec<Duration>,
    /// Results of the others.
    pub failed: Vec<String>,
    /// The largest number of failed probes in a row.
    pub in_a_row: usize,
    /// How many do not count: the prober sent its request too late.
    pub late: usize,
}

impl Flood {
    /// Opens this many connections a second. Half of them send nothing, the others a part of a head.
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

    /// The number of connections opened so far.
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
    let mut next = since_boot();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(next.saturating_sub(since_boot()));
        next += period;
        let Ok(mut stream) = TcpStream::connect_timeout(&to.into(), CONNECT) else {
            continue;
        };
        let count = opened.fetch_add(1, Ordering::Relaxed);
        if count.is_multiple_of(2) {
            // The server may have closed it by now, as it should.
            let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: ");
        }
        kept.push_back(stream);
        if kept.len() > KEPT {
            kept.pop_front();
        }
    }
}

/// Probes again and again for this duration, each time over a new connection and with a kubelet's timeout.
///
/// # Errors
/// When the host cannot be entered.
pub fn probe(host: &Host, to: SocketAddrV4, path: &str, length: Duration) -> io::Result<Probed> {
    host.run(|| {
        let mut probed = Probed::default();
        let mut row = 0;
        let end = since_boot() + length;
        while since_boot() < end {
            let begun = since_boot();
            let problem = match ask(to, path) {
                Ok(None) => {
                    probed.late += 1;
                    None
                }
                Ok(Some(answer)) if answer.starts_with("HTTP/1.1 200 ") => {
                    probed.answered.push(since_boot() - begun);
                    row = 0;
                    None
                }
                Ok(Some(answer)) => Some(format!("answered {answer:?}")),
                // The error of a read that timed out (socket(7), SO_RCVTIMEO).
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
            std::thread::sleep((begun + PROBE_PERIOD).saturating_sub(since_boot()));
        }
        probed
    })
}

/// The answer; `None` when the request was sent too late to count.
fn ask(to: SocketAddrV4, path: &str) -> io::Result<Option<String>> {
    let end = since_boot() + PROBE_TIMEOUT;
    let left = || match end.saturating_sub(since_boot()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok::<_, io::Error>(left),
    };
    let mut stream = TcpStream::connect_timeout(&to.into(), left()?)?;
    let connected = since_boot();
    let sent = stream.write_all(format!("GET {path} HTTP/1.1\r\nhost: {to}\r\n\r\n").as_bytes());
    if since_boot() - connected > LATE {
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
