//! The requests that are not answered yet.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::answer::Answer;
use crate::clock::BootInstant;

/// A quorum write, whose missing answer shows that the server is cut off.
#[derive(Clone, Copy)]
pub(super) enum Write {
    Enter,
    Renewal,
    Mark,
    Record,
    Delete,
    TakeOver,
}

impl Write {
    const ALL: [Self; 6] = [
        Self::Enter,
        Self::Renewal,
        Self::Mark,
        Self::Record,
        Self::Delete,
        Self::TakeOver,
    ];

    /// Whether a lease depends on it.
    pub(super) fn renews(self) -> bool {
        matches!(self, Self::Renewal | Self::Mark | Self::TakeOver)
    }
}

type Answers<Connection> = FuturesUnordered<BoxFuture<'static, Answer<Connection>>>;

/// The answers that we wait for, all of the present connection.
pub(super) struct Pending<Connection> {
    /// About the connection itself, and about the queue as a whole.
    of_link: Answers<Connection>,
    /// About our contender, dropped with it: a late answer has no meaning for the next contender.
    of_contender: Answers<Connection>,
    /// When the writes under way were sent, by [`Write`].
    writes: [Option<BootInstant>; Write::ALL.len()],
}

impl<Connection> Pending<Connection> {
    pub(super) fn new() -> Self {
        Self {
            of_link: Answers::new(),
            of_contender: Answers::new(),
            writes: [None; Write::ALL.len()],
        }
    }

    /// Waits for the result of a request about our contender, which `answer` reports.
    pub(super) fn ask<T>(
        &mut self,
        request: impl Future<Output = T> + Send + 'static,
        answer: impl FnOnce(T) -> Answer<Connection> + Send + 'static,
    ) {
        self.of_contender.push(request.map(answer).boxed());
    }

    /// The same for a request about something that outlives our contender.
    pub(super) fn ask_link<T>(
        &mut self,
        request: impl Future<Output = T> + Send + 'static,
        answer: impl FnOnce(T) -> Answer<Connection> + Send + 'static,
    ) {
        self.of_link.push(request.map(answer).boxed());
    }

    /// The next answer; waits without a limit while there is no request.
    pub(super) async fn next(&mut self) -> Answer<Connection> {
        tokio::select! {
            biased;
            Some(answer) = self.of_contender.next() => answer,
            Some(answer) = self.of_link.next() => answer,
            else => std::future::pending().await,
        }
    }

    /// An answer about our contender that is here already.
    pub(super) fn next_at_hand(&mut self) -> Option<Answer<Connection>> {
        self.of_contender.next().now_or_never().flatten()
    }

    /// Our contender is gone: no answer about it matters.
    pub(super) fn forget_contender(&mut self) {
        self.of_contender.clear();
        self.writes = [None; Write::ALL.len()];
    }

    /// The connection is gone: nothing will be answered.
    pub(super) fn forget(&mut self) {
        self.of_link.clear();
        self.forget_contender();
    }

    /// A write is sent `now`.
    pub(super) fn writing(&mut self, write: Write, now: BootInstant) {
        self.writes[write as usize] = Some(now);
    }

    /// It is answered.
    pub(super) fn written(&mut self, write: Write) {
        self.writes[write as usize] = None;
    }

    /// Whether one of these writes is under way.
    pub(super) fn has_any(&self, writes: &[Write]) -> bool {
        writes.iter().any(|write| self.writes[*write as usize].is_some())
    }

    /// When the first of the writes under way has been without an answer for as long as `patience` says.
    pub(super) fn stuck_at(&self, patience: impl Fn(Write) -> Duration) -> Option<BootInstant> {
        let stuck = Write::ALL.into_iter().zip(self.writes);
        stuck
            .filter_map(|(write, sent)| Some(sent? + patience(write)))
            .min()
    }
}
