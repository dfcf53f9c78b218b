//! The first waiter prepares for its turn.

use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Client, Options, SkewedClock, World};
use lockkeeper_lock::{Clock, Lock, LockOptions, LockState, Timing};

const T: Duration = Duration::from_secs(6);

/// Longer than it takes to get a new lease, even with a pause between two servers.
const A_WHILE: Duration = Duration::from_secs(1);

fn contender(world: &Arc<World>, name: &str, clock: &SkewedClock) -> Lock<SkewedClock> {
    let timing = Timing {
        tick_time: Duration::from_secs(1),
        stop_grace: Duration::from_millis(500),
        ..Timing::new(T)
    };
    let (lock, task) = Lock::with_task::<Client>(
        world.client(name),
        clock.clone(),
        LockOptions::new("/locks/report", timing),
    );
    tokio::spawn(task);
    lock
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_becomes_the_heir_after_a_long_wait_proves_its_lease_at_its_own_server() {
    let world = Arc::new(World::new(Options {
        servers: 3,
        tick: Duration::from_secs(1),
        session_timeout: T,
        ..Options::default()
    }));
    let clock = SkewedClock::new(1.0, Duration::from_secs(1));
    let [first, second, third] = ["first", "second", "third"].map(|name| contender(&world, name, &clock));
    first.acquire().await.unwrap();
    second.contend().await.unwrap();
    third.contend().await.unwrap();
    // Pings keep its session, but prove nothing: its lease has ended.
    tokio::time::sleep(T * 2).await;
    assert!(third.status().lease_end < Some(clock.now()));
    let server = world.server_of("third").expect("it is connected");

    first.release().await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    assert_eq!(second.status().state, LockState::Held);
    let heir = third.status();
    assert_eq!(heir.state, LockState::Waiting);
    assert!(heir.lease_end > Some(clock.now()), "{heir:?}");
    assert_eq!(world.server_of("third"), Some(server));
}
