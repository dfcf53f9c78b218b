//! Servers that stop, clients that are frozen, clocks and seeds.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_stopped_server_refuses_and_serves_again_when_it_has_caught_up() {
    let world = world();
    let client = world.client("a");
    let connection = connect(&client, 0).await;
    world.stop(1);
    assert!(matches!(
        client.attach(1, None, PATIENCE).await.err(),
        Some(EnsembleError::Unreachable { .. })
    ));
    connection.make_path("/l", Vec::new()).await.unwrap();
    world.start(1);
    eventually("it follows", || world.shared.state().servers[1].is_in_sync).await;
    let connection = connect(&client, 1).await;
    assert!(connection.node("/l").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_client_that_is_thawed_early_goes_on_at_once() {
    let world = world();
    let client = world.client("a");
    world.freeze("a", TICK * 20);
    let frozen_at = world.now();
    let goes_on = Freezable::new(client).run(async {});
    let thaws = async {
        tokio::time::sleep(TICK).await;
        world.freeze("a", Duration::ZERO);
    };
    tokio::join!(goes_on, thaws);
    assert_eq!(world.now() - frozen_at, TICK);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_client_does_nothing_until_it_thaws_and_finds_its_answer_then() {
    let world = world();
    let client = world.client("a");
    let connection = connect(&client, 1).await;
    let write = Freezable::new(client.clone()).run(connection.make_path("/l", Vec::new()));
    world.freeze("a", TICK * 2);
    let frozen_at = world.now();
    assert_eq!(write.await, Ok(()));
    assert_eq!(world.now() - frozen_at, TICK * 2);
    assert!(connection.is_intact());
}

#[tokio::test(start_paused = true)]
async fn a_skewed_clock_runs_at_its_rate_and_never_wakes_anybody_early() {
    for rate in [0.99, 1.0, 1.01] {
        let clock = SkewedClock::new(rate, Duration::from_secs(7));
        let (start, true_start) = (clock.now(), Instant::now());
        for millis in [1, 10, 333, 10_000] {
            let duration = Duration::from_millis(millis);
            let before = clock.now();
            clock.sleep(duration).await;
            assert!(clock.now() - before >= duration, "{rate}: {duration:?}");
        }
        let ratio = (clock.now() - start).as_secs_f64() / true_start.elapsed().as_secs_f64();
        assert!((ratio - rate).abs() < 1e-6, "{ratio}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    let mut histories = Vec::new();
    for _ in 0..2 {
        let world = world();
        let connection = connect(&world.client("a"), 2).await;
        connection.make_path("/l", Vec::new()).await.unwrap();
        connection.create_contender("/l/c-", Vec::new(), 0).await.unwrap();
        world.isolate("a", FOR_EVER);
        eventually("the contender goes", || world.children("/l").is_empty()).await;
        histories.push(world.records());
    }
    assert_eq!(histories[0], histories[1]);
}
