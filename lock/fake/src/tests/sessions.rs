//! When a session lives and when it ends.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_session_that_is_ended_during_an_election_leaves_nothing_behind() {
    let world = world();
    let connection = connect(&world.client("a"), 0).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    // The elected server is far behind, and catches up before it serves.
    world.set_lag(1, Duration::from_secs(60));
    connection.create_contender("/l/c-", Vec::new(), 0).await.unwrap();
    assert!(
        world.shared.state().servers[1]
            .tree
            .node("/l/c-0000000000")
            .is_err()
    );
    world.elect(1);
    world.expire(connection.session().id);
    eventually("it leads", || world.shared.state().can_commit()).await;
    assert_eq!(world.node("/l/c-0000000000"), None);
}

#[tokio::test(start_paused = true)]
async fn a_session_ends_no_earlier_than_t_and_soon_after_the_tick_after_it_was_counted_last() {
    for (seed, server) in (0..20).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let world = World::new(Options {
            seed,
            session_timeout: T,
            tick: TICK,
            ..Options::default()
        });
        let connection = connect(&world.client("a"), server).await;
        tokio::time::sleep(Duration::from_millis(seed * 137)).await;
        let session = connection.session().id;
        world.isolate("a", FOR_EVER);
        let mut counted = world.counted(session).unwrap().0;
        eventually("the session ends", || match world.counted(session) {
            Some((last, _)) => {
                counted = last;
                false
            }
            None => true,
        })
        .await;
        let silent = world.now() - counted;
        assert!(
            silent > T && silent <= T + TICK + Duration::from_millis(200),
            "{silent:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_that_the_leader_is_ending_can_be_resumed_and_can_write_and_ends_all_the_same() {
    let world = world();
    let client = world.client("a");
    let connection = connect(&client, 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    let session = connection.session().id;
    world.isolate("a", FOR_EVER);
    let mut ends = Duration::MAX;
    eventually("the leader takes the session", || {
        ends = world.counted(session).map_or(ends, |(_, ends)| ends);
        world.now() > ends
    })
    .await;
    world.heal();
    assert!(world.is_alive(session), "not marked yet");
    let resumed = client.attach(2, Some(&connection), PATIENCE).await.unwrap();
    resumed.multi(check("/l")).await.unwrap();
    assert!(
        world.counted(session).unwrap().1 > world.now() + T,
        "its timeout is restarted"
    );
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!world.is_alive(session));
}

#[tokio::test(start_paused = true)]
async fn a_follower_without_its_leader_serves_a_session_that_has_ended_long_ago() {
    let world = world();
    let connection = connect(&world.client("a"), 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    let mine = connection.create_contender("/l/c-", Vec::new(), 0).await.unwrap();
    world.cut_server(1, FOR_EVER);
    eventually("the leader ends the session", || {
        !world.is_alive(connection.session().id)
    })
    .await;
    let ended = world.now();
    assert!(world.children("/l").is_empty());
    let mut last_read = ended;
    while connection.node(&mine.path).await.is_ok() {
        last_read = world.now();
    }
    // Until the sync limit of ten ticks, as measured on a real ensemble.
    assert!(
        last_read - ended > Duration::from_secs(3),
        "{:?}",
        last_read - ended
    );
    assert_eq!(connection.closed().await, Closed::Disconnected);
    let resumed = world.client("a").attach(0, Some(&connection), PATIENCE).await;
    assert_eq!(resumed.err(), Some(EnsembleError::SessionExpired));
}

#[tokio::test(start_paused = true)]
async fn a_session_taken_to_another_server_is_counted_at_once_and_leaves_the_old_connection() {
    let world = world();
    let client = world.client("a");
    let old = connect(&client, 1).await;
    old.make_path("/l", Vec::new()).await.unwrap();
    world.cut_server(1, FOR_EVER);
    tokio::time::sleep(T / 2).await;
    let asked = world.now();
    let new = client.attach(2, Some(&old), PATIENCE).await.unwrap();
    assert!(world.counted(new.session().id).unwrap().0 >= asked);
    world.heal();
    let refused = old.multi(check("/l")).await.unwrap_err();
    assert_eq!(refused.error, EnsembleError::ConnectionLoss);
    assert_eq!(new.multi(check("/l")).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_counts_every_session_anew() {
    let world = world();
    let connection = connect(&world.client("a"), 0).await;
    let session = connection.session().id;
    world.isolate("a", FOR_EVER);
    tokio::time::sleep(T - Duration::from_millis(500)).await;
    let before = world.now();
    world.stop(0);
    eventually("the session is counted", || {
        world
            .counted(session)
            .is_some_and(|(counted, _)| counted > before)
    })
    .await;
    assert_ne!(world.leader(), 0);
    assert!(world.counted(session).unwrap().1 > world.now() + T);
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_written_and_no_session_ends() {
    let world = world();
    let connection = connect(&world.client("a"), 0).await;
    world.cut_server(0, T * 2 + TICK);
    let write = connection.make_path("/l", Vec::new());
    let mut write = Box::pin(write);
    tokio::time::sleep(T * 2).await;
    assert!(futures_util::poll!(&mut write).is_pending());
    assert!(world.is_alive(connection.session().id));
    assert_eq!(write.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_session_that_its_client_ends_takes_its_nodes_along_and_a_dropped_connection_does_not() {
    let world = world();
    let client = world.client("a");
    let connection = connect(&client, 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    connection.create_contender("/l/c-", Vec::new(), 0).await.unwrap();
    let other = client.attach(2, Some(&connection), PATIENCE).await.unwrap();
    drop(connection);
    tokio::time::sleep(T / 2).await;
    assert_eq!(world.children("/l").len(), 1);
    other.close_session().await;
    assert!(world.children("/l").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_leader_counts_a_session_by_what_its_last_server_granted() {
    let world = world();
    let client = world.client("a");
    let connection = connect(&client, 1).await;
    world.limit_sessions(2, T / 2);
    let less = client.attach(2, Some(&connection), PATIENCE).await.unwrap();
    assert_eq!(less.session().id, connection.session().id);
    assert_eq!(less.session().timeout, T / 2);
    let (counted, expires) = world.counted(less.session().id).unwrap();
    assert!(expires - counted <= T / 2 + TICK);
    let more = client.attach(1, Some(&less), PATIENCE).await.unwrap();
    assert_eq!(more.session().timeout, T);
}
