//! A connection to the application.

use tokio::net::TcpStream;

/// Connects; the error is a sentence.
pub(super) async fn connect(host: &str, port: u16) -> Result<TcpStream, String> {
    TcpStream::connect((host, port))
        .await
        .map_err(|error| format!("cannot connect to {host}:{port}: {error}"))
}
