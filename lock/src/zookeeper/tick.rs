//! What the ensemble says of its tick, on which the lease arithmetic stands.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::ServerAddress;

/// Sends a four-letter word to a server that does not speak TLS.
pub(super) async fn ask(server: &ServerAddress, word: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
    stream.write_all(word).await?;
    // The server closes the connection behind its answer, which is some hundred bytes.
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer).await?;
    Ok(answer)
}

/// Whether the answer to a four-letter word says that this server never answers it (`NopCommand` of the server).
pub fn is_switched_off(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("not in the whitelist")
}

/// Reads the tick from the answer to `conf`.
pub fn parse(answer: &[u8]) -> Option<Duration> {
    let answer = String::from_utf8_lossy(answer);
    let millis = answer.lines().find_map(|line| line.strip_prefix("tickTime="))?;
    millis
        .trim()
        .parse()
        .ok()
        .filter(|millis| *millis > 0)
        .map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tick_is_read_from_the_answer_to_conf() {
        assert_eq!(
            parse(b"clientPort=2181\ntickTime=2000\nmaxClientCnxns=60\n"),
            Some(Duration::from_secs(2))
        );
    }

    #[test]
    fn a_word_that_is_switched_off_is_told_from_a_server_that_does_not_serve_yet() {
        assert!(is_switched_off(
            b"conf is not executed because it is not in the whitelist.\n"
        ));
        assert!(!is_switched_off(
            b"This ZooKeeper instance is not currently serving requests\n"
        ));
    }

    #[test]
    fn a_refusal_says_nothing_of_the_tick() {
        for answer in [
            "",
            "conf is not executed because it is not in the whitelist.",
            "tickTime=x",
            "tickTime=0",
        ] {
            assert_eq!(parse(answer.as_bytes()), None);
        }
    }
}
