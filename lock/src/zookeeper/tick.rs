//! The ensemble's tick as its servers report it: the lease arithmetic depends on it.

use std::time::Duration;

use tokio::sync::watch;

use super::ServerAddress;
use super::servers::ZooKeeper;

/// Within this time after a new connection all servers are asked, at random moments: after an outage many clients come
/// back at once. It is short compared with the three renewals that prove a lease anew.
const SPREAD: Duration = Duration::from_millis(500);

impl ZooKeeper {
    /// Asks all servers at once for their `tickTime` with the four-letter word `conf`, which is often switched off
    /// (`4lw.commands.whitelist`). Returns the longest one, since any of them may become the leader; `None` if no
    /// server answers within `patience`.
    pub async fn tick_time(&self, patience: Duration) -> Option<Duration> {
        let servers = self.connect.servers().iter();
        let asked = servers.map(|server| self.conf(server, patience));
        let told = futures_util::future::join_all(asked).await;
        told.iter().filter_map(|answer| parse(answer)).max()
    }

    /// The answer of a server to `conf`; empty if there is none within `patience`.
    async fn conf(&self, server: &ServerAddress, patience: Duration) -> Vec<u8> {
        let answer = tokio::time::timeout(patience, self.ask(server, b"conf")).await;
        answer.ok().flatten().unwrap_or_default()
    }

    /// Asks each server for its `tickTime`: soon after each change of `connected` (a lock has a new connection to any
    /// of them), and after each `pause` until it has answered. Returns the first tick that is longer than `stated`, and
    /// waits until there is one. Cancel-safe.
    ///
    /// [`ZooKeeper::tick_time`] misses the servers that are down at that moment, and those that are restarted with
    /// another tick. Such a server makes leases too long when it leads. A new leader ends all connections, so every
    /// client asks again.
    pub async fn tick_longer_than(
        &self,
        stated: Duration,
        patience: Duration,
        pause: Duration,
        connected: watch::Receiver<()>,
    ) -> Duration {
        let asked = self.connect.servers().iter().map(|server| {
            let mut connected = connected.clone();
            Box::pin(async move {
                let mut is_told = false;
                loop {
                    tokio::select! {
                        Ok(()) = connected.changed() => {
                            tokio::time::sleep(SPREAD.mul_f64(fastrand::f64())).await;
                        }
                        () = tokio::time::sleep(pause), if !is_told => {}
                        else => std::future::pending().await,
                    }
                    let answer = self.conf(server, patience).await;
                    match parse(&answer) {
                        Some(tick) if tick > stated => return tick,
                        told => is_told = told.is_some() || is_switched_off(&answer),
                    }
                }
            })
        });
        // A connect string has at least one server.
        futures_util::future::select_all(asked).await.0
    }
}

/// Whether the answer to a four-letter word shows that this server never answers it (`NopCommand` of the server).
fn is_switched_off(answer: &[u8]) -> bool {
    String::from_utf8_lossy(answer).contains("not in the whitelist")
}

/// Reads the tick from the answer to `conf`.
pub(crate) fn parse(answer: &[u8]) -> Option<Duration> {
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

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

    /// What a server answers to `conf`: this one word.
    async fn answer(listener: &TcpListener, answer: &str) {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_exact(&mut [0; 4]).await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
    }

    /// A server that answers `conf` like this, or never.
    async fn server(told: Option<&'static str>) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                match told {
                    Some(told) => answer(&listener, told).await,
                    None => {
                        let _open = listener.accept().await;
                        std::future::pending::<()>().await;
                    }
                }
            }
        });
        port
    }

    fn zookeeper(connect: &str) -> ZooKeeper {
        ZooKeeper::new(connect.parse().unwrap(), Duration::from_secs(15))
    }

    async fn tick_of(servers: &[Option<&'static str>]) -> Option<Duration> {
        let mut connect = Vec::new();
        for answer in servers {
            connect.push(format!("127.0.0.1:{}", server(*answer).await));
        }
        zookeeper(&connect.join(","))
            .tick_time(Duration::from_secs(2))
            .await
    }

    const STATED: Duration = Duration::from_secs(2);
    const MOMENT: Duration = Duration::from_millis(20);
    /// Far longer than any test should take.
    const BOUND: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_longer_tick_of_a_server_that_comes_later_is_told() {
        let port = server(None).await;
        let late = tokio::net::TcpSocket::new_v4().unwrap();
        late.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let zookeeper = zookeeper(&format!("127.0.0.1:{port},{}", late.local_addr().unwrap()));
        let (_lock, connected) = watch::channel(());
        let told = zookeeper.tick_longer_than(STATED, MOMENT, MOMENT, connected);
        let mut told = std::pin::pin!(told);
        // One server is down, and the other one does not answer: there is no tick to report.
        assert!(tokio::time::timeout(MOMENT * 5, &mut told).await.is_err());
        let late = late.listen(8).unwrap();
        tokio::spawn(async move {
            answer(&late, "This ZooKeeper instance is not currently serving requests").await;
            answer(&late, "tickTime=3000\n").await;
        });
        let told = tokio::time::timeout(BOUND, told).await;
        assert_eq!(told, Ok(Duration::from_secs(3)));
    }

    /// Independent of its answer before.
    #[tokio::test]
    async fn the_tick_that_a_server_has_made_longer_is_told_after_the_next_connection_to_any_of_them() {
        for before in [
            "tickTime=2000\n",
            "conf is not executed because it is not in the whitelist.\n",
        ] {
            let same = server(Some("tickTime=2000\n")).await;
            let changed = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let zookeeper = zookeeper(&format!("127.0.0.1:{same},{}", changed.local_addr().unwrap()));
            let (lock, connected) = watch::channel(());
            let told = zookeeper.tick_longer_than(STATED, BOUND, MOMENT, connected);
            let restart = async {
                answer(&changed, before).await;
                lock.send_replace(());
                answer(&changed, "tickTime=3000\n").await;
                std::future::pending().await
            };
            let told = tokio::time::timeout(BOUND, async {
                tokio::select! { told = told => told, () = restart => unreachable!() }
            });
            assert_eq!(told.await, Ok(Duration::from_secs(3)), "{before}");
        }
    }

    #[tokio::test]
    async fn the_longest_tick_of_all_servers_counts_also_when_one_of_them_never_answers() {
        let (short, long) = (Some("tickTime=1000\n"), Some("tickTime=3000\n"));
        let longest = Some(Duration::from_secs(3));
        assert_eq!(tick_of(&[short, long]).await, longest);
        assert_eq!(tick_of(&[None, long, short]).await, longest);
        assert_eq!(tick_of(&[None, Some("not in the whitelist")]).await, None);
    }
}
