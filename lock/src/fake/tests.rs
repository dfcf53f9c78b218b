use super::*;
use crate::clock::Clock;
use crate::ensemble::{Connection, Ensemble, EnsembleError, NodeEvent, Op};

const PATIENCE: Duration = Duration::from_secs(1);
const FOR_EVER: Duration = Duration::from_secs(100_000);
const T: Duration = Duration::from_secs(4);
const TICK: Duration = Duration::from_secs(1);

fn world() -> World {
    World::new(Options {
        session_timeout: T,
        tick: TICK,
        sync_limit: 10,
        ..Options::default()
    })
}

async fn connect(client: &Client, server: usize) -> FakeConnection {
    client.attach(server, None, PATIENCE).await.unwrap()
}

/// Waits until `is_so`, for a minute of the simulated clock at most.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..60_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}

fn check(path: &str) -> Vec<Op> {
    vec![Op::Check {
        path: path.to_owned(),
    }]
}

#[tokio::test(start_paused = true)]
async fn contenders_get_growing_numbers_and_tokens_also_when_earlier_ones_are_gone() {
    let world = world();
    let connection = connect(&world.client("a"), 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    let first = connection
        .create_contender("/l/c-", b"x".to_vec(), 0)
        .await
        .unwrap();
    world.delete(&first.path);
    let second = connection.create_contender("/l/c-", Vec::new(), 0).await.unwrap();
    assert_eq!(first.path, "/l/c-0000000000");
    assert_eq!(second.path, "/l/c-0000000001");
    assert!(first.czxid < second.czxid);
    assert_eq!(second.owner, connection.session().id);
    assert_eq!(world.node(&second.path).unwrap().czxid, second.czxid);
    assert_eq!(connection.children("/l").await.unwrap().names, ["c-0000000001"]);
}

#[tokio::test(start_paused = true)]
async fn a_multi_is_carried_out_as_a_whole_or_not_at_all() {
    let world = world();
    let connection = connect(&world.client("a"), 0).await;
    connection.make_path("/l/a", b"1".to_vec()).await.unwrap();
    let set = |version| Op::SetData {
        path: "/l/a".to_owned(),
        data: b"2".to_vec(),
        version,
    };
    let delete = |path: &str| Op::Delete {
        path: path.to_owned(),
    };
    let failed = connection.multi(vec![set(0), delete("/l")]).await.unwrap_err();
    assert_eq!((failed.index, failed.error), (1, EnsembleError::NotEmpty));
    let failed = connection.multi(vec![set(0), set(0)]).await.unwrap_err();
    assert_eq!((failed.index, failed.error), (1, EnsembleError::BadVersion));
    assert_eq!(world.node("/l/a").unwrap().version, 0);
    connection
        .multi(vec![set(0), delete("/l/a"), delete("/l")])
        .await
        .unwrap();
    let failed = connection.multi(check("/l/a")).await.unwrap_err();
    assert_eq!(failed.error, EnsembleError::NoNode);
    assert_eq!(connection.node("/l").await, Err(EnsembleError::NoNode));
    let missing = connection.set_data("/l", Vec::new(), None).await;
    assert_eq!(missing, Err(EnsembleError::NoNode));
}

#[tokio::test(start_paused = true)]
async fn a_follower_shows_the_writes_of_others_late_and_ones_own_at_once() {
    let world = world();
    let writer = connect(&world.client("a"), 0).await;
    let reader = connect(&world.client("b"), 1).await;
    writer.make_path("/l", b"old".to_vec()).await.unwrap();
    eventually("the follower hears of it", || {
        world.shared.state().servers[1].tree.node("/l").is_ok()
    })
    .await;
    world.set_lag(1, Duration::from_secs(1));
    world.set_data("/l", b"new".to_vec().as_slice());
    let mut stale = 0;
    while reader.node("/l").await.unwrap().data == b"old" {
        stale += 1;
    }
    assert!(stale > 0);
    reader.set_data("/l", b"own".to_vec(), None).await.unwrap();
    assert_eq!(reader.node("/l").await.unwrap().data, b"own");
}

#[tokio::test(start_paused = true)]
async fn a_session_that_is_ended_during_an_election_leaves_nothing_behind() {
    let world = world();
    let connection = connect(&world.client("a"), 0).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    // The server that is elected is far behind, and catches up before it serves.
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
async fn a_watch_fires_once_and_before_any_answer_that_shows_the_change() {
    let world = world();
    let connection = connect(&world.client("a"), 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    for round in 0..50_u8 {
        let (node, event) = connection.watch_node("/l").await.unwrap();
        let mut event = Box::pin(event);
        world.set_data("/l", &[round]);
        while connection.node("/l").await.unwrap().data == node.data {}
        assert_eq!(
            futures_util::poll!(&mut event),
            std::task::Poll::Ready(NodeEvent::Changed)
        );
    }
    let (_, event) = connection.watch_node("/l").await.unwrap();
    world.delete("/l");
    assert_eq!(event.await, NodeEvent::Deleted);
    assert!(world.shared.state().servers[1].watches.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_watch_says_so_when_its_connection_is_gone() {
    let world = world();
    let connection = connect(&world.client("a"), 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    let (_, event) = connection.watch_node("/l").await.unwrap();
    world.disconnect("a");
    assert_eq!(event.await, NodeEvent::Disconnected);
    assert_eq!(connection.closed().await, Closed::Disconnected);
    assert!(!connection.is_intact());
    assert_eq!(connection.node("/l").await, Err(EnsembleError::ConnectionLoss));
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
        "it is counted anew"
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
async fn a_contender_is_there_when_only_the_answer_to_its_creation_was_lost() {
    let world = world();
    let client = world.client("a");
    let connection = connect(&client, 1).await;
    connection.make_path("/l", Vec::new()).await.unwrap();
    world.lose_next_answer("a");
    let created = connection.create_contender("/l/c-", Vec::new(), 0).await;
    assert_eq!(created, Err(EnsembleError::ConnectionLoss));
    let again = client.attach(2, Some(&connection), PATIENCE).await.unwrap();
    assert_eq!(again.session(), connection.session());
    assert_eq!(
        again.node("/l/c-0000000000").await.unwrap().owner,
        again.session().id
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_loses_some_requests_and_of_others_only_the_answer() {
    let (mut carried_out, mut lost) = (0, 0);
    for seed in 0..40 {
        let world = World::new(Options {
            seed,
            ..Options::default()
        });
        let connection = connect(&world.client("a"), 1).await;
        connection.make_path("/l", Vec::new()).await.unwrap();
        let answer = connection.make_path("/l/a", Vec::new());
        world.disconnect("a");
        assert_eq!(answer.await, Err(EnsembleError::ConnectionLoss));
        tokio::time::sleep(Duration::from_secs(1)).await;
        match world.node("/l/a") {
            Some(_) => carried_out += 1,
            None => lost += 1,
        }
    }
    assert!(
        carried_out > 5 && lost > 5,
        "{carried_out} carried out, {lost} lost"
    );
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
async fn a_forbidden_path_is_refused_for_reading_and_writing() {
    let world = world();
    let connection = connect(&world.client("a"), 1).await;
    world.forbid("/l");
    let made = connection.make_path("/l/a", Vec::new()).await;
    assert_eq!(made, Err(EnsembleError::NoAuth));
    assert_eq!(connection.children("/l").await, Err(EnsembleError::NoAuth));
    world.allow("/l");
    assert_eq!(connection.make_path("/l/a", Vec::new()).await, Ok(()));
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
