//! The four-letter words of a server.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::ServerAddress;

/// Sends a four-letter word to a server without TLS.
pub(super) async fn ask(server: &ServerAddress, word: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
    stream.write_all(word).await?;
    // The server closes the connection after its answer, which has some hundred bytes.
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer).await?;
    Ok(answer)
}
