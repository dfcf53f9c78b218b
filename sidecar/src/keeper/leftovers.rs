//! What a killed guard may have left behind.
//!
//! Everything that the guard starts inherits the path of this run's socket in its environment, and
//! no other process has it. A process may have cleared its environment: so finding none proves
//! nothing, and the lock is abandoned in any case.

use std::path::Path;
use std::time::Duration;

use lockkeeper_lock::Clock;
use rustix::process::{Pid, Signal, kill_process};

/// How long to look: a tree that forks while it is killed takes some rounds.
const ROUNDS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(5);

/// Kills what carries `socket` in its environment until nothing is found any more.
pub(super) async fn kill(socket: &Path, clock: &impl Clock) {
    let mark = [b"LOCKKEEPER_SOCKET=", socket.as_os_str().as_encoded_bytes()].concat();
    for _ in 0..ROUNDS {
        let found = marked(&mark);
        if found.is_empty() {
            return;
        }
        for pid in found {
            // It may be gone, or another user's: then the anchor has more rights than we.
            let _ = kill_process(pid, Signal::KILL);
        }
        clock.sleep(PAUSE).await;
    }
}

fn marked(mark: &[u8]) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| {
            entry
                .ok()?
                .file_name()
                .to_str()?
                .parse()
                .ok()
                .and_then(Pid::from_raw)
        })
        .filter(|pid| *pid != own)
        .filter(|pid| {
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|variable| variable == mark)
            })
        })
        .collect()
}
