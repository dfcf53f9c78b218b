//! Processes that are frozen for a while.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::sleep_until;

use crate::client::Client;

/// Runs futures of a client as its process would: it does not poll them while the process is frozen
/// ([`crate::World::freeze`]). Bytes that arrive meanwhile wait in the socket.
#[derive(Clone)]
pub struct Freezable {
    client: Client,
}

impl Freezable {
    /// For futures of `client`.
    pub fn new(client: Client) -> Self {
        Self { client }
    }

    /// `future`, which is not polled while the client is frozen.
    pub fn run<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Frozen {
            client: self.client.clone(),
            thaw: None,
            future: Box::pin(future),
        }
    }
}

struct Frozen<F> {
    client: Client,
    thaw: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Frozen<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        while let Some(until) = self.client.frozen_until() {
            let client = self.client.clone();
            let mut thaw = Box::pin(async move {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = client.shared.refrozen.notified() => {}
                }
            });
            if thaw.as_mut().poll(context).is_pending() {
                self.thaw = Some(thaw);
                return Poll::Pending;
            }
        }
        self.thaw = None;
        self.future.as_mut().poll(context)
    }
}
