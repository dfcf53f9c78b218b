//! The crowd of contenders through this project's library, and two others on ZooKeeper: the lock that comes with the client
//! that the library uses, and the floor below every recipe.
//!
//! A contender that has released stands back until another one holds; with `--rejoin at-once` it queues again at once.
//! `releasing` comes before the release is sent, `held` after the library has said so.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_lock::{BootClock, BootInstant, Lock, LockOptions, Timing};
use lockkeeper_testbed::ensemble::with_clients;
use tokio::sync::watch;
use tokio::task::JoinSet;
use zookeeper_client as zk;

/// The others may all have lost their sessions.
const STAND_BACK: Duration = Duration::from_secs(5);

/// There is no command that has to be stopped.
const STOP_GRACE: Duration = Duration::from_millis(200);

/// Many users of one lock in one process, without a command.
#[derive(Parser)]
#[command(name = "lockkeeper-crowd")]
struct Args {
    /// The lock.
    #[arg(long)]
    system: Recipe,
    /// HOST:PORT,...
    #[arg(long)]
    servers: String,
    /// Its name.
    #[arg(long)]
    lock: String,
    /// The session timeout.
    #[arg(long)]
    lease_ms: u64,
    /// How long each holds.
    #[arg(long)]
    hold_ms: u64,
    /// How many contenders.
    #[arg(long)]
    crowd: usize,
    /// When a contender that has released queues again.
    #[arg(long, default_value = "next")]
    rejoin: Rejoin,
}

#[derive(Clone, Copy, ValueEnum)]
enum Recipe {
    /// This project's library.
    Lockkeeper,
    /// `Client::lock` of `zookeeper-client`.
    ZookeeperClient,
    /// No recipe: one connection deletes a node, and another one is told by its watch. Two connections, however large the crowd is.
    Floor,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Rejoin {
    /// When another one holds.
    Next,
    AtOnce,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let args = Arc::new(Args::parse());
    with_clients(|| compete(args)).await
}

async fn compete(args: Arc<Args>) -> anyhow::Result<()> {
    let (holds, _) = watch::channel(0);
    let mut tasks = JoinSet::new();
    match args.system {
        Recipe::Floor => {
            tasks.spawn(floor(args));
        }
        Recipe::Lockkeeper => (0..args.crowd).for_each(|who| {
            tasks.spawn(lockkeeper(args.clone(), Contender::new(&args, who, &holds)));
        }),
        Recipe::ZookeeperClient => (0..args.crowd).for_each(|who| {
            tasks.spawn(zookeeper_client(args.clone(), Contender::new(&args, who, &holds)));
        }),
    }
    match tasks.join_next().await {
        Some(ended) => ended?,
        None => anyhow::bail!("--crowd 0 has nobody in it"),
    }
}

/// One of the crowd: what it says, and how long it holds and stands back.
struct Contender {
    who: usize,
    hold: Duration,
    stands_back: bool,
    /// How often the lock was held, by all together.
    holds: watch::Sender<u64>,
}

impl Contender {
    fn new(args: &Args, who: usize, holds: &watch::Sender<u64>) -> Self {
        Self {
            who,
            hold: Duration::from_millis(args.hold_ms),
            stands_back: args.rejoin == Rejoin::Next,
            holds: holds.clone(),
        }
    }

    /// From the moment when the library has said that the lock is held to the one just before its release.
    async fn hold(&self) -> watch::Receiver<u64> {
        say("held", self.who);
        self.holds.send_modify(|count| *count += 1);
        let next = self.holds.subscribe();
        tokio::time::sleep(self.hold).await;
        say("releasing", self.who);
        next
    }

    async fn stand_back(&self, mut next: watch::Receiver<u64>) {
        if self.stands_back {
            // Whether somebody holds or all have lost their sessions: it queues again.
            let _ = tokio::time::timeout(STAND_BACK, next.changed()).await;
        }
    }
}

async fn lockkeeper(args: Arc<Args>, contender: Contender) -> anyhow::Result<()> {
    let session = Duration::from_millis(args.lease_ms);
    let timing = Timing {
        tick_time: Duration::from_secs(1),
        stop_grace: STOP_GRACE,
        ..Timing::new(session)
    };
    let ensemble = ZooKeeper::new(args.servers.parse()?, session);
    let lock = Lock::new(ensemble, BootClock, LockOptions::new(root(&args), timing));
    // Its session begins with the first turn.
    say("ready", contender.who);
    loop {
        lock.acquire().await?;
        let next = contender.hold().await;
        lock.release().await?;
        contender.stand_back(next).await;
    }
}

async fn zookeeper_client(args: Arc<Args>, contender: Contender) -> anyhow::Result<()> {
    let client = connect(&args).await?;
    let ancestors = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    let root = root(&args);
    client.mkdir(&root, &ancestors).await?;
    say("ready", contender.who);
    loop {
        let prefix = zk::LockPrefix::new_curator(&root, "lock-")?;
        let lock = client.lock(prefix, b"", zk::Acls::anyone_all()).await?;
        let next = contender.hold().await;
        lock.delete(lock.lock_path(), None).await?;
        // It is deleted; its drop would only try again.
        std::mem::forget(lock);
        contender.stand_back(next).await;
    }
}

async fn floor(args: Arc<Args>) -> anyhow::Result<()> {
    let clients = [connect(&args).await?, connect(&args).await?];
    let node = root(&args);
    let ephemeral = zk::CreateMode::Ephemeral.with_acls(zk::Acls::anyone_all());
    let ancestors = zk::CreateMode::Persistent.with_acls(zk::Acls::anyone_all());
    if let Some((parent, _)) = node.rsplit_once('/') {
        clients[0].mkdir(parent, &ancestors).await?;
    }
    (0..args.crowd).for_each(|who| say("ready", who));
    let mut holder = 0;
    say("held", holder);
    loop {
        let other = 1 - holder;
        clients[holder].create(&node, b"", &ephemeral).await?;
        // A server may be behind: without the node, its watch would be for the creation.
        let watcher = loop {
            match clients[other].get_and_watch_data(&node).await {
                Ok((.., watcher)) => break watcher,
                Err(zk::Error::NoNode) => {}
                Err(error) => return Err(error).context("the floor's watch"),
            }
        };
        tokio::time::sleep(Duration::from_millis(args.hold_ms)).await;
        say("releasing", holder);
        let deleted = clients[holder].delete(&node, None);
        let told = async {
            watcher.changed().await;
            say("held", other);
        };
        tokio::join!(told, deleted).1?;
        holder = other;
    }
}

async fn connect(args: &Args) -> anyhow::Result<zk::Client> {
    let client = zk::Client::connector()
        .with_session_timeout(Duration::from_millis(args.lease_ms))
        .connect(&args.servers)
        .await;
    client.with_context(|| format!("no session at {}", args.servers))
}

fn root(args: &Args) -> String {
    format!("/rivals/{}", args.lock)
}

fn say(event: &str, who: usize) {
    let at = BootInstant::now().as_nanos();
    let line = format!("{{\"event\":\"{event}\",\"at\":{at},\"who\":{who}}}\n");
    // One write a line. Whoever does not read it any more has no use for it either.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}
