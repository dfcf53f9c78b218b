//! A waiter whose turn comes from further back in the queue has not renewed: little may be left of the lease with which
//! it entered.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Client, Options, SkewedClock, World};
use lockkeeper_lock::{Clock, Lock, LockOptions, LockState, LockView, Mode, Timing};

const T: Duration = Duration::from_secs(6);

fn start(world: &Arc<World>, clock: &SkewedClock, name: String) -> Lock<SkewedClock> {
    let timing = Timing {
        tick_time: Duration::from_secs(1),
        stop_grace: Duration::from_millis(500),
        ..Timing::new(T)
    };
    let options = LockOptions {
        mode: Mode::Semaphore(NonZeroU32::new(2).unwrap()),
        ..LockOptions::new("/locks/report", timing)
    };
    let (lock, task) = Lock::with_task::<Client>(world.client(name), clock.clone(), options);
    tokio::spawn(task);
    lock
}

async fn wait_for(view: &mut LockView<SkewedClock>, state: LockState) {
    while view.status().state != state {
        view.changed().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_gets_a_place_just_before_the_end_of_its_first_lease_keeps_it() {
    // The end of the first lease, and moments before it, also after the deadline.
    for remaining in [50, 300, 1_000, 2_000, 3_000] {
        let world = Arc::new(World::new(Options {
            tick: Duration::from_secs(1),
            session_timeout: T,
            ..Options::default()
        }));
        let clock = SkewedClock::new(1.0, Duration::from_secs(1_000));
        let mut locks = Vec::new();
        for number in 0..4 {
            let lock = start(&world, &clock, number.to_string());
            lock.contend().await.unwrap();
            locks.push(lock);
        }
        for lock in &locks[..2] {
            lock.acquire().await.unwrap();
        }
        let last = locks.pop().unwrap();
        let end = last.status().lease_end.unwrap();
        let left = end - clock.now();
        tokio::time::sleep(left - Duration::from_millis(remaining)).await;
        let (first, second) = tokio::join!(locks[0].release(), locks[1].release());
        first.and(second).unwrap();

        let mut view = last.view();
        let held = async {
            wait_for(&mut view, LockState::Held).await;
            wait_for(&mut view, LockState::Lost).await;
        };
        let lost = tokio::time::timeout(T * 3, held).await;
        assert!(
            lost.is_err(),
            "{remaining} ms before the end of its lease: held and lost"
        );
        assert_eq!(last.status().state, LockState::Held, "{remaining} ms");
    }
}
