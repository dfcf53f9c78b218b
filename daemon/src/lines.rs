//! Lines that wait for a thread which writes them.
//!
//! Not `tracing-appender`: when its queue is full at the end, it prints to stdout, which may be a user's data.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

/// How many bytes of lines wait. The oldest make room for more, and the reader is told how many are missing.
const MOST: usize = 256 * 1024;

/// The stack of the thread, in bytes: enough, since it only writes.
const STACK: usize = 128 * 1024;

/// How long a process that is about to end waits for the reader of its lines.
const PATIENCE: Duration = Duration::from_secs(1);

/// The lines of this process that go to stderr, once its log was started.
static OF_STDERR: OnceLock<Lines> = OnceLock::new();

/// Waits until all lines are written to stderr, for a second at most.
pub(crate) fn flush() {
    if let Some(lines) = OF_STDERR.get() {
        lines.wait_until_written(PATIENCE);
    }
}

/// Writes a line after all others, and waits as [`flush`]; false if there is no log.
pub(crate) fn tell(line: &str) -> bool {
    let Some(lines) = OF_STDERR.get() else {
        return false;
    };
    let _ = lines.clone().write_all(line.as_bytes());
    flush();
    true
}

/// A queue of lines for a thread that writes them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Lines {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// The length of all lines that wait.
    bytes: usize,
    /// How many lines have made room since the reader was last told how many are missing. They came before those that
    /// wait.
    left_out: usize,
    is_writing: bool,
}

enum Next {
    Line(Vec<u8>),
    /// The number of lines that are missing here.
    Gap(usize),
}

impl Lines {
    /// Starts the thread that writes into `writer`, and that ends with the process. `gap` makes the line that tells how
    /// many are missing.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub(crate) fn to(
        mut writer: impl Write + Send + 'static,
        gap: impl Fn(usize) -> String + Send + 'static,
    ) -> io::Result<Self> {
        let lines = Self {
            queue: Arc::default(),
        };
        let queue = Arc::clone(&lines.queue);
        let write = move || {
            loop {
                let line = match queue.next() {
                    Next::Line(line) => line,
                    Next::Gap(left_out) => gap(left_out).into_bytes(),
                };
                // What goes wrong here has nobody to be told to.
                let _ = writer.write_all(&line);
            }
        };
        thread::Builder::new()
            .name("log".to_owned())
            .stack_size(STACK)
            .spawn(write)?;
        Ok(lines)
    }

    /// Makes these the lines of the process to stderr: [`flush`] and [`tell`] use them from now on.
    pub(crate) fn are_of_stderr(self) {
        let _ = OF_STDERR.set(self);
    }

    /// Waits until all lines are written, at most for this time.
    pub(crate) fn wait_until_written(&self, most: Duration) {
        let is_busy = |state: &mut State| state.is_writing || state.left_out > 0 || !state.waiting.is_empty();
        let waited = self
            .queue
            .changed
            .wait_timeout_while(self.queue.state(), most, is_busy);
        drop(waited);
    }
}

/// Each call is one line. It never waits, and never fails.
impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.queue.state().add(line);
        self.queue.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl State {
    fn add(&mut self, line: &[u8]) {
        self.waiting.push_back(line.to_owned());
        self.bytes += line.len();
        while self.bytes > MOST
            && let Some(oldest) = self.waiting.pop_front()
        {
            self.bytes -= oldest.len();
            self.left_out += 1;
        }
    }

    fn take(&mut self) -> Option<Next> {
        if self.left_out > 0 {
            return Some(Next::Gap(std::mem::take(&mut self.left_out)));
        }
        let line = self.waiting.pop_front()?;
        self.bytes -= line.len();
        Some(Next::Line(line))
    }
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what to write next, and waits for it. The call also says that what came before is written.
    fn next(&self) -> Next {
        let mut state = self.state();
        state.is_writing = false;
        self.changed.notify_all();
        loop {
            if let Some(next) = state.take() {
                state.is_writing = true;
                return next;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that takes nothing until it is thawed: until the sender is gone.
    struct Frozen {
        thawed: mpsc::Receiver<()>,
        read: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Frozen {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.thawed.recv();
            self.read.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn frozen() -> (mpsc::Sender<()>, Lines, Arc<Mutex<Vec<u8>>>) {
        let (frozen, thawed) = mpsc::channel();
        let read = Arc::<Mutex<Vec<u8>>>::default();
        let reader = Frozen {
            thawed,
            read: Arc::clone(&read),
        };
        (
            frozen,
            Lines::to(reader, |count| format!("{count} missing\n")).unwrap(),
            read,
        )
    }

    #[test]
    fn a_reader_that_is_frozen_holds_nobody_up_and_is_told_later_how_many_lines_were_left_out() {
        let (frozen, mut lines, read) = frozen();
        lines.write_all(b"line 0\n").unwrap();
        let queue = Arc::clone(&lines.queue);
        while !queue.state().is_writing {
            thread::yield_now();
        }
        let count = MOST / 50;
        for number in 1..count {
            lines
                .write_all(format!("line {number:095}\n").as_bytes())
                .unwrap();
        }
        assert!(queue.state().bytes <= MOST);
        drop(frozen);
        lines.wait_until_written(Duration::MAX);
        let text = String::from_utf8(read.lock().unwrap().clone()).unwrap();
        let shown: Vec<_> = text.lines().collect();
        assert_eq!(shown[0], "line 0");
        assert_eq!(shown[1], format!("{} missing", count - (shown.len() - 1)));
        assert_eq!(shown.last().unwrap(), &format!("line {:095}", count - 1));
    }

    #[test]
    fn a_process_that_ends_does_not_wait_for_a_frozen_reader_for_long() {
        let (_frozen, mut lines, read) = frozen();
        lines.write_all(b"line\n").unwrap();
        lines.wait_until_written(Duration::from_millis(20));
        assert!(read.lock().unwrap().is_empty());
    }
}
