//! The answer to a review while it is being sent. A client that does not read it keeps it in memory: so the memory that
//! was held for the review is free only when the answer has gone, and there is a deadline for that.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use lockkeeper_daemon::places::{Place, Standing};
use lockkeeper_daemon::send_deadline::SendDeadline;

/// How long the API server may take to read an answer. It waits for 30 s for all of a review at most.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// What is passed on at once, in bytes: hyper asks for more when it has little left.
const PIECE: usize = 16 << 10;

/// The body of an answer, and what is held for it.
#[derive(Debug)]
pub(super) struct Sending {
    rest: Bytes,
    place: Arc<Place>,
    deadline: SendDeadline,
}

impl Sending {
    pub(super) fn begin(answer: Bytes, place: Arc<Place>, deadline: SendDeadline) -> Self {
        deadline.begin(SEND_TIMEOUT);
        Self {
            rest: answer,
            place,
            deadline,
        }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        let length = self.rest.len().min(PIECE);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.place.let_go();
        self.place.stand(Standing::Idle);
        self.deadline.end();
    }
}
