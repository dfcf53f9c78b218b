//! Runs a function under a lock, in one process at a time:
//! `cargo run -p lockkeeper-lock --example guarded -- 127.0.0.1:2181 /locks/example`.

use std::time::Duration;

use lockkeeper_lock::zookeeper::ZooKeeper;
use lockkeeper_lock::{BootClock, Lock, LockOptions, Timing};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let connect = arguments
        .next()
        .ok_or("the first argument is the list of servers")?
        .parse()?;
    let root = arguments.next().ok_or("the second argument is the lock's path")?;

    let timing = Timing::new(Duration::from_secs(15));
    let ensemble = ZooKeeper::new(connect, timing.session_timeout);
    let lock = Lock::new(ensemble, BootClock, LockOptions::new(root, timing));

    let answer = lock
        .guarded(|token, view| async move {
            println!("held under token {token}: {}", view.is_held());
            tokio::time::sleep(Duration::from_secs(2)).await;
            "done"
        })
        .await?;
    println!("{answer}");
    lock.close().await?;
    Ok(())
}
