//! One connection of the HTTP server, for the crate `fuzz`. The released binaries do not contain it: see the feature
//! `fuzzing`.

use tokio::io::{AsyncRead, AsyncWrite};

use crate::accept::Stopping;
use crate::http::{self, Routes};
use crate::places::{Places, Source};

/// Serves one connection.
pub async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, routes: impl Routes, stopping: Stopping) {
    let place = Places::new(1).take(Source::LOCAL);
    http::connection(stream, None, place, routes, stopping).await;
}
