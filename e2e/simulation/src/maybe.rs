//! Waiting for an optional future.

/// Waits for a future, or for ever if there is none.
pub(crate) async fn maybe<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}
