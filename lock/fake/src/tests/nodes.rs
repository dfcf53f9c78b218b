//! Nodes, watches, and the results of requests.

use super::*;

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
        version: Some(version),
    };
    let delete = |path: &str| Op::Delete {
        path: path.to_owned(),
        version: None,
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
