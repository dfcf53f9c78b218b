//! Orders to the supervisor: one line each, and one line as the answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context, bail};

use super::layout;

/// An order that waits for its answer.
pub(crate) struct Order {
    /// The order itself.
    pub line: String,
    stream: UnixStream,
}

impl Order {
    pub(crate) fn answer(mut self, result: anyhow::Result<String>) {
        let line = match result {
            Ok(text) => format!("ok {text}\n"),
            Err(error) => format!("error {}\n", format!("{error:#}").replace('\n', "\t")),
        };
        // The client may be gone.
        let _ = self.stream.write_all(line.as_bytes());
    }
}

/// Accepts orders, for as long as this process lives.
///
/// # Errors
/// When the socket cannot be made.
pub(crate) fn listen() -> anyhow::Result<Receiver<Order>> {
    let path = layout::control();
    let listener = UnixListener::bind(&path).with_context(|| format!("cannot make {}", path.display()))?;
    let (orders, queue) = mpsc::channel();
    thread::Builder::new().name("orders".to_owned()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut line = String::new();
            let Ok(reader) = stream.try_clone() else { continue };
            let read = BufReader::new(reader).read_line(&mut line);
            let line = line.trim().to_owned();
            if read.is_ok() && orders.send(Order { line, stream }).is_err() {
                return;
            }
        }
    })?;
    Ok(queue)
}

/// Sends an order, and waits until the supervisor has carried it out.
///
/// # Errors
/// When there is no supervisor, or it cannot carry the order out, with its message.
pub(crate) fn ask(line: &str) -> anyhow::Result<String> {
    let path = layout::control();
    let mut stream = UnixStream::connect(&path).with_context(|| {
        format!(
            "no cluster is running: no supervisor answers at {}",
            path.display()
        )
    })?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    match answer.trim_end().split_once(' ') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", text)) => bail!("{}", text.replace('\t', "\n")),
        _ => match answer.trim_end() {
            "ok" => Ok(String::new()),
            _ => bail!("the supervisor of the cluster has ended"),
        },
    }
}
