//! What the ensemble says of its tick, on which the lease arithmetic stands.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::address::{ConnectString, ServerAddress};

/// Asks the servers in turn for their `tickTime` with the four-letter word `conf`, which is often
/// switched off (`4lw.commands.whitelist`) and which a TLS port does not have. `None` when none of
/// them says, each within `patience`.
pub async fn tick_time(connect: &ConnectString, patience: Duration) -> Option<Duration> {
    for server in connect.servers().iter().filter(|server| !server.tls) {
        if let Ok(Ok(answer)) = tokio::time::timeout(patience, ask(server)).await
            && let Some(tick) = parse(&answer)
        {
            return Some(tick);
        }
    }
    None
}

async fn ask(server: &ServerAddress) -> std::io::Result<String> {
    let mut stream = TcpStream::connect((server.host.as_str(), server.port)).await?;
    stream.write_all(b"conf").await?;
    // The server closes the connection behind its answer, which is some hundred bytes.
    let mut answer = Vec::new();
    stream.take(64 * 1024).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn parse(answer: &str) -> Option<Duration> {
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
            parse("clientPort=2181\ntickTime=2000\nmaxClientCnxns=60\n"),
            Some(Duration::from_secs(2))
        );
    }

    #[test]
    fn a_refusal_says_nothing_of_the_tick() {
        for answer in [
            "",
            "conf is not executed because it is not in the whitelist.",
            "tickTime=x",
            "tickTime=0",
        ] {
            assert_eq!(parse(answer), None);
        }
    }
}
