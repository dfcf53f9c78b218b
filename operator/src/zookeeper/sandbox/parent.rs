//! The operator's side of a session: it starts the process, reads its messages within limits, ends it, and starts it
//! again.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockkeeper_crds::lock::Reason;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe::{Receiver, Sender};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use super::process::{Process, Started};
use super::wire::{self, Ask, Hello, LONGEST, Numbered, Refused, Reply, Told};
use super::{MEMORY, PATIENCE, Question, Session};
use crate::lock_key::LockKey;
use crate::problem::Problem;
use crate::zookeeper::queues::picture::{Contender, Picture, Queue};
use crate::zookeeper::queues::{Link, View};

/// How much is read from a process in a second, in bytes as [`Told::weight`] counts them. The rest waits in the pipe:
/// reading a megabyte takes a core some 10 ms.
const PER_SECOND: usize = 4 << 20;

/// How long the queues of a namespace may take to be read.
const READING: Duration = Duration::from_secs(60);

/// Time until a process is started again: doubled each time, from the first to the second value.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

/// After a process has lived for this time, the pause begins at its shortest again.
const LONG: Duration = Duration::from_secs(300);

/// How long a process may take to start, and to end after its pipe was closed.
const GRACE: Duration = Duration::from_secs(10);

/// How much of its output on stderr is kept, in bytes.
const LAST_WORDS: u64 = 1024;

/// The longest tick that is believed.
const LONGEST_TICK: u64 = 3_600_000;

/// An ensemble that is followed by processes, one after the other.
pub(crate) struct Follow {
    /// The operator's own program.
    pub(crate) program: PathBuf,
    /// The first message to each process.
    pub(crate) hello: Hello,
    /// The view that their messages fill.
    pub(crate) view: View,
    /// How the operator stands with the ensemble.
    pub(crate) link: watch::Sender<Link<Arc<Session>>>,
}

/// One process.
struct Life<'a> {
    follow: &'a Follow,
    session: Arc<Session>,
    stdin: Sender,
    /// Questions that are not answered yet.
    waiting: HashMap<u64, oneshot::Sender<Result<Reply, Refused>>>,
    number: u64,
    /// The queues so far, until all of them were received once.
    first: Option<Picture>,
    /// What is remembered of each lock, in bytes.
    weights: HashMap<LockKey, usize>,
    /// When it has to have read all queues.
    reading: Option<Instant>,
}

impl Follow {
    /// Follows the ensemble; to be run as a task. Ends when it is dropped, and the process with it.
    pub(crate) async fn run(self) {
        let [mut pause, longest] = PAUSES;
        loop {
            let started = Instant::now();
            let problem = self.live().await;
            tracing::warn!(
                namespace = self.hello.namespace,
                connect = self.hello.connect,
                reason = problem.message,
                "The session with an ensemble that locks name has ended"
            );
            self.link.send_replace(Link::Down(problem));
            if started.elapsed() > LONG {
                pause = PAUSES[0];
            }
            tokio::time::sleep(pause.mul_f64(1.0 + fastrand::f64() / 2.0)).await;
            pause = longest.min(pause * 2);
        }
    }

    /// The life of one process, and why it ended.
    async fn live(&self) -> Problem {
        let started = Process::start(&self.program);
        let Started {
            process,
            mut stdin,
            stdout,
            stderr,
        } = match started {
            Ok(started) => started,
            Err(error) => {
                let message = format!("the operator cannot start a process for the ensemble: {error}");
                return Problem::new(Reason::Disconnected, message);
            }
        };
        let mut tasks = JoinSet::new();
        let (words, last_words) = oneshot::channel();
        tasks.spawn(async move { drop(words.send(self::last_words(stderr).await)) });
        let hello = wire::frame(&self.hello);
        match tokio::time::timeout(GRACE, stdin.write_all(&hello)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return ended(process, last_words).await,
        }
        let (tell, mut told) = mpsc::channel(1);
        tasks.spawn(hear(stdout, tell));
        let (session, mut questions) = Session::new();
        let mut life = Life {
            follow: self,
            session: Arc::new(session),
            stdin,
            waiting: HashMap::new(),
            number: 0,
            first: Some(Picture::default()),
            weights: HashMap::new(),
            reading: None,
        };
        let session = Arc::clone(&life.session);
        loop {
            let reading = life.reading;
            let done = tokio::select! {
                heard = told.recv() => match heard {
                    Some(Ok((told, length))) => life.take(told, length),
                    Some(Err(problem)) => Err(problem),
                    None => return ended(process, last_words).await,
                },
                Some(question) = questions.recv() => {
                    if life.pass_on(question).await.is_err() {
                        return ended(process, last_words).await;
                    }
                    Ok(())
                }
                () = session.is_stuck.notified() => {
                    Err(unusable(format!("its servers did not answer a request within {PATIENCE:?}")))
                }
                () = async { tokio::time::sleep_until(reading.unwrap_or_else(Instant::now)).await },
                    if reading.is_some() =>
                {
                    Err(unusable(format!("its servers did not deliver all queues within {READING:?}")))
                }
            };
            if let Err(problem) = done {
                return problem;
            }
        }
    }
}

impl Life<'_> {
    async fn pass_on(&mut self, question: Question) -> std::io::Result<()> {
        let Question { ask, answer } = question;
        self.number += 1;
        self.waiting.insert(self.number, answer);
        let asked = Numbered::<Ask> {
            number: self.number,
            content: ask,
        };
        self.stdin.write_all(&wire::frame(&asked)).await
    }

    fn take(&mut self, told: Told, length: usize) -> Result<(), Problem> {
        let weight = told.weight(length);
        let Follow {
            view, link, hello, ..
        } = self.follow;
        match told {
            Told::Down { cause, message } => {
                self.reading = None;
                let problem = Problem::new(cause.into(), wire::short(&message));
                tracing::warn!(
                    namespace = hello.namespace,
                    connect = hello.connect,
                    reason = problem.message,
                    "No connection to an ensemble that locks name"
                );
                link.send_replace(Link::Down(problem));
            }
            Told::Reading => {
                self.reading = Some(Instant::now() + READING);
                // The reason for the end of the previous process is shown until a session is up.
                link.send_if_modified(|link| {
                    let is_unusable =
                        matches!(link, Link::Down(problem) if problem.reason == Reason::EnsembleUnusable);
                    if !is_unusable {
                        *link = Link::Reading;
                    }
                    !is_unusable
                });
            }
            Told::Up {
                session,
                id,
                tick_millis,
            } => {
                self.reading = None;
                let tick = tick_millis.filter(|millis| (1..=LONGEST_TICK).contains(millis));
                view.identify(Uuid::from_u64_pair(id.0, id.1), tick.map(Duration::from_millis));
                if let Some(first) = self.first.take() {
                    view.replace(first);
                }
                self.session.id.store(session, Ordering::Relaxed);
                link.send_replace(Link::Up(Arc::clone(&self.session)));
            }
            Told::Queue {
                name,
                exists,
                contenders,
                excess,
            } => {
                let key = LockKey::new(hello.namespace.as_str(), name);
                if let Some(excess) = excess {
                    let (name, excess) = (wire::short(&key.name), wire::short(&excess));
                    return Err(unusable(format!("lock {name}: {excess}")));
                }
                if let Some(row) = contenders.iter().find(|row| row.is_too_large()) {
                    let message = format!(
                        "the node {} of lock {} holds more data than a contender may",
                        wire::short(&row.name),
                        wire::short(&key.name)
                    );
                    return Err(unusable(message));
                }
                let queue = Queue::of(exists, contenders.into_iter().map(Contender::from));
                self.remember(&key, &queue, weight)?;
                match &mut self.first {
                    Some(first) => drop(first.put_queue(&key, queue)),
                    None => view.edit(&key, |picture| picture.put_queue(&key, queue)),
                }
            }
            Told::Answer(Numbered { number, content }) => {
                // Its caller has stopped waiting.
                let _ = self.waiting.remove(&number).map(|answer| answer.send(content));
            }
        }
        Ok(())
    }

    /// Counts what is remembered of this ensemble.
    fn remember(&mut self, key: &LockKey, queue: &Queue, weight: usize) -> Result<(), Problem> {
        if *queue == Queue::default() {
            self.weights.remove(key);
        } else {
            self.weights.insert(key.clone(), weight);
        }
        let all: usize = self.weights.values().sum();
        if all > LONGEST {
            return Err(unusable(format!(
                "the queues of namespace {} there take more than {} MiB",
                key.namespace,
                LONGEST >> 20
            )));
        }
        Ok(())
    }
}

/// Takes messages, one after the other and not too fast.
async fn hear(mut stdout: Receiver, tell: mpsc::Sender<Result<(Told, usize), Problem>>) {
    let mut debt = Instant::now();
    while let Ok(length) = stdout.read_u32().await {
        let length = length as usize;
        let heard = if length > LONGEST {
            let message = format!("one queue there takes more than {} MiB", LONGEST >> 20);
            Err(unusable(message))
        } else {
            let mut content = Vec::new();
            let read = (&mut stdout).take(length as u64).read_to_end(&mut content).await;
            if read.is_err() || content.len() < length {
                // The process ended in the middle of a message.
                return;
            }
            match serde_json::from_slice::<Told>(&content) {
                Ok(told) => Ok((told, length)),
                Err(error) => Err(unusable(format!("its process sent an invalid message: {error}"))),
            }
        };
        let weight = heard.as_ref().map_or(0, |(told, length)| told.weight(*length));
        if tell.send(heard).await.is_err() {
            return;
        }
        // A burst of one second's worth, and then at the limit.
        debt = debt.max(Instant::now()) + Duration::from_secs(1).mul_f64(weight as f64 / PER_SECOND as f64);
        tokio::time::sleep_until(debt - Duration::from_secs(1)).await;
    }
}

async fn last_words(stderr: Receiver) -> String {
    let mut words = Vec::new();
    // A part of it is enough if reading fails.
    let _ = stderr.take(LAST_WORDS).read_to_end(&mut words).await;
    String::from_utf8_lossy(&words).into_owned()
}

/// The problem to report for a process that has closed its pipe.
async fn ended(mut process: Process, last_words: oneshot::Receiver<String>) -> Problem {
    let how = match tokio::time::timeout(GRACE, process.wait()).await {
        Ok(Ok(status)) => status.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(_) => "it does not end".to_owned(),
    };
    let words = tokio::time::timeout(GRACE, last_words).await;
    let words = words.ok().and_then(Result::ok).unwrap_or_default();
    tracing::warn!(how, words, "The process of a session has ended");
    unusable(format!(
        "the session with it ended ({how}): its servers sent more than fits into the {} MiB that the operator has \
         for it, or data that no ZooKeeper server sends",
        MEMORY >> 20
    ))
}

fn unusable(message: String) -> Problem {
    Problem::new(Reason::EnsembleUnusable, message)
}
