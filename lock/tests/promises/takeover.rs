//! Contenders with a lease duration: the next one takes the place of a silent one, and a silent one has stopped by then.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_fake::{Happened, Takeovers, World};
use lockkeeper_lock::{ContenderData, LeaseDuration, LockOptions, LockState, LossReason, Mode, Pod, Timing};

use super::{
    FakeLock, ROOT, T, contender, eventually, is_still, lock_with, options, queued_at, state, status_where,
    world_of,
};

/// L: shorter than T.
pub(super) const L: Duration = Duration::from_secs(2);

pub(super) fn with_lease() -> LockOptions {
    let options = options();
    LockOptions {
        timing: Timing {
            lease_duration: LeaseDuration::Of(L),
            ..options.timing
        },
        ..options
    }
}

pub(super) fn leasing(world: &Arc<World>, name: &str) -> FakeLock {
    lock_with(world, name, with_lease())
}

pub(super) fn sharing(world: &Arc<World>, name: &str) -> FakeLock {
    let mode = Mode::Semaphore(NonZeroU32::new(2).unwrap());
    lock_with(world, name, LockOptions { mode, ..with_lease() })
}

/// When a node was deleted, since the world began.
pub(super) fn deleted(world: &World, path: &str) -> Option<Duration> {
    let records = world.records();
    let mut gone = records.iter().filter_map(|record| match &record.happened {
        Happened::Deleted { path: deleted } if deleted == path => Some(record.at),
        _ => None,
    });
    gone.next()
}

/// Waits until a contender's data state L: from then on it may be replaced.
pub(super) async fn states_its_lease(world: &World, path: &str) {
    eventually("it renews by its data", || {
        let node = world.node(path);
        node.is_some_and(|node| ContenderData::parse(&node.data).lease() == Some(L))
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dead_holder_is_replaced_after_its_lease_while_its_session_still_lives() {
    for seed in 0..50 {
        let world = world_of(seed);
        let [holder, heir] = ["holder", "heir"].map(|name| leasing(&world, name));
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        let (path, session) = (contender(&holder), holder.status().session.unwrap());
        states_its_lease(&world, &path).await;
        let died = world.now();
        drop(holder);
        state(&heir, LockState::Held).await;
        assert!(world.is_alive(session), "seed {seed}");
        let gone = deleted(&world, &path).unwrap() - died;
        // It has renewed at most one interval before, and the clocks are exact here.
        assert!(gone > L - L / 4 && gone < L + L / 4, "seed {seed}: {gone:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_is_cut_off_has_stopped_when_its_place_is_taken() {
    for seed in 0..50 {
        let world = world_of(seed);
        let [holder, heir] = ["holder", "heir"].map(|name| leasing(&world, name));
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        let path = contender(&holder);
        states_its_lease(&world, &path).await;
        tokio::time::sleep(Duration::from_millis(seed * 13)).await;
        world.isolate("holder", T);
        let lost = state(&holder, LockState::Lost).await;
        let stopped = world.now();
        assert_eq!(lost.loss, Some(LossReason::DeadlineReached));
        assert_eq!(deleted(&world, &path), None, "seed {seed}");
        state(&heir, LockState::Held).await;
        assert!(deleted(&world, &path).unwrap() > stopped, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_heir_is_replaced_while_it_waits_and_the_one_behind_it_waits_on() {
    for seed in 0..20 {
        let world = world_of(seed);
        let [holder, heir, third] = ["holder", "heir", "third"].map(|name| leasing(&world, name));
        let token = holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        queued_at(&third, 2).await;
        let dead = contender(&heir);
        states_its_lease(&world, &dead).await;
        drop(heir);
        let next = status_where(&third, |status| status.position == Some(1)).await;
        assert_eq!(next.state, LockState::Waiting);
        assert!(deleted(&world, &dead).is_some(), "seed {seed}");
        assert!(
            is_still(&holder, |status| status.token == Some(token)
                && status.state == LockState::Held)
            .await
        );
        assert_eq!(third.status().state, LockState::Waiting);
        holder.release().await.unwrap();
        assert_eq!(state(&third, LockState::Held).await.token, next.token);
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_has_replaced_a_waiter_does_not_say_that_it_got_the_lock_from_it() {
    for seed in 0..20 {
        let world = world_of(seed);
        let [holder, heir] = ["holder", "heir"].map(|name| leasing(&world, name));
        let count = Arc::new(Takeovers::default());
        let observer = Some(count.clone() as _);
        let third = LockOptions {
            observer,
            ..with_lease()
        };
        let third = lock_with(&world, "third", third);
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        queued_at(&third, 2).await;
        states_its_lease(&world, &contender(&heir)).await;
        drop(heir);
        queued_at(&third, 1).await;
        eventually("it has taken the place", || count.count() == 1).await;
        holder.release().await.unwrap();
        let status = state(&third, LockState::Held).await;
        assert_eq!(status.took_over, None, "seed {seed}");
        let own = contender(&third);
        let said = || ContenderData::parse(&world.node(&own).unwrap().data);
        eventually("it says that it holds", || said().is_held()).await;
        assert_eq!(said().took_over, None, "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_contender_whose_name_does_not_fit_into_our_data_is_left_to_its_session() {
    let world = world_of(0);
    let owner = leasing(&world, "owner");
    owner.acquire().await.unwrap();
    let session = owner.status().session.unwrap();
    states_its_lease(&world, &contender(&owner)).await;
    let data = String::from_utf8(world.node(&contender(&owner)).unwrap().data.clone()).unwrap();
    let waiting = data.replace("\"held\"", "\"waiting\"");
    let long = format!("{ROOT}/{}-lock-0000000001", "x".repeat(300));
    world.create_owned(&long, waiting.as_bytes(), session);
    let heir = leasing(&world, "heir");
    queued_at(&heir, 2).await;
    let began = world.now();
    drop(owner);
    state(&heir, LockState::Held).await;
    let gone = deleted(&world, &long).unwrap() - began;
    assert!(!world.is_alive(session) && gone > T / 2, "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn any_dead_holder_of_a_semaphore_is_replaced_whichever_place_it_has() {
    for (seed, dies) in (0..20).zip([0, 1].into_iter().cycle()) {
        let world = world_of(seed);
        let mut holders = Vec::from(["a", "b"].map(|name| sharing(&world, name)));
        for holder in &holders {
            holder.acquire().await.unwrap();
        }
        let heir = sharing(&world, "heir");
        queued_at(&heir, 1).await;
        for holder in &holders {
            states_its_lease(&world, &contender(holder)).await;
        }
        let dead = holders.remove(dies);
        let (path, session) = (contender(&dead), dead.status().session.unwrap());
        drop(dead);
        state(&heir, LockState::Held).await;
        assert!(
            world.is_alive(session) && deleted(&world, &path).is_some(),
            "seed {seed}"
        );
        assert_eq!(holders[0].status().state, LockState::Held);
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_takeover_costs_time_and_nothing_else() {
    for seed in 0..100 {
        let world = world_of(seed);
        let [holder, heir] = ["holder", "heir"].map(|name| leasing(&world, name));
        holder.acquire().await.unwrap();
        queued_at(&heir, 1).await;
        let path = contender(&holder);
        states_its_lease(&world, &path).await;
        drop(holder);
        // The heir's writes from now on are renewals, and one takeover.
        let moment = L - L / 8 + Duration::from_millis(seed * 5);
        tokio::time::sleep(moment).await;
        world.lose_next_answer("heir");
        let token = heir.status().token;
        assert_eq!(state(&heir, LockState::Held).await.token, token, "seed {seed}");
        assert!(deleted(&world, &path).is_some());
        heir.release().await.unwrap();
    }
}

/// When a node was changed first after a moment.
fn changed_after(world: &World, path: &str, moment: Duration) -> Option<Duration> {
    let records = world.records();
    let mut changes = records.iter().filter_map(|record| match &record.happened {
        Happened::Changed { path: changed } if changed == path => Some(record.at),
        _ => None,
    });
    changes.find(|at| *at > moment)
}

/// A holder that died, the next one with its count, and the moment from which on that one may take the place.
async fn died_before(world: &Arc<World>) -> (FakeLock, Arc<Takeovers>, String, Duration) {
    let holder = leasing(world, "holder");
    let count = Arc::new(Takeovers::default());
    let observer = Some(count.clone() as _);
    let heir = lock_with(
        world,
        "heir",
        LockOptions {
            observer,
            ..with_lease()
        },
    );
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    let dead = contender(&holder);
    states_its_lease(world, &dead).await;
    drop(holder);
    let died = world.now();
    // A renewal may still be on its way.
    tokio::time::sleep(L / 2).await;
    let mut last = died;
    while let Some(later) = changed_after(world, &dead, last) {
        last = later;
    }
    tokio::time::sleep(last + L.mul_f64(1.01) - world.now()).await;
    (heir, count, dead, world.now())
}

#[tokio::test(start_paused = true)]
async fn a_takeover_whose_answer_is_lost_is_told_as_any_other() {
    let mut lost = 0;
    for seed in 0..50 {
        let world = world_of(seed);
        let (heir, count, dead, moment) = died_before(&world).await;
        world.lose_next_answer("heir");
        let own = contender(&heir);
        state(&heir, LockState::Held).await;
        // It was a renewal just before, in some histories.
        let is_of_takeover = changed_after(&world, &own, moment) == deleted(&world, &dead);
        lost += usize::from(is_of_takeover);
        eventually("it says so", || {
            ContenderData::parse(&world.node(&own).unwrap().data).is_held()
        })
        .await;
        let said = ContenderData::parse(&world.node(&own).unwrap().data).took_over;
        let from = said.map(|of| format!("{ROOT}/{}", of.contender));
        let told = (from, count.count());
        assert_eq!(told, (Some(dead.clone()), 1), "seed {seed}: {is_of_takeover}");
        let status = heir.status();
        let shown = status.took_over.map(|of| format!("{ROOT}/{}", of.contender));
        assert_eq!(
            (shown, status.lease_duration),
            (Some(dead), Some(L)),
            "seed {seed}"
        );
    }
    assert!(lost > 25, "{lost}");
}

#[tokio::test(start_paused = true)]
async fn a_takeover_that_is_lost_on_its_way_is_not_told_when_the_session_in_front_ends() {
    for seed in 0..20 {
        let world = world_of(seed);
        let (heir, count, dead, _) = died_before(&world).await;
        world.isolate("heir", T * 2);
        eventually("the session in front ends", || world.node(&dead).is_none()).await;
        world.heal();
        state(&heir, LockState::Held).await;
        let own = contender(&heir);
        eventually("it says so", || {
            ContenderData::parse(&world.node(&own).unwrap().data).is_held()
        })
        .await;
        let said = ContenderData::parse(&world.node(&own).unwrap().data);
        assert_eq!((said.took_over, count.count()), (None, 0), "seed {seed}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_the_one_in_front_counts_and_not_that_of_the_one_that_waits() {
    let world = world_of(0);
    let options = with_lease();
    let timing = Timing {
        lease_duration: LeaseDuration::Of(L * 2),
        ..options.timing
    };
    let holder = lock_with(&world, "holder", LockOptions { timing, ..options });
    let heir = leasing(&world, "heir");
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    let path = contender(&holder);
    eventually("it states its lease", || {
        ContenderData::parse(&world.node(&path).unwrap().data).lease() == Some(L * 2)
    })
    .await;
    let died = world.now();
    drop(holder);
    state(&heir, LockState::Held).await;
    let gone = deleted(&world, &path).unwrap() - died;
    assert!(gone > L + L / 2 && gone < L * 2 + L / 2, "{gone:?}");
}

#[tokio::test(start_paused = true)]
async fn a_writer_behind_readers_that_died_together_waits_for_one_lease_and_not_for_one_each() {
    let world = world_of(0);
    let of = |name: &str, mode| lock_with(&world, name, LockOptions { mode, ..with_lease() });
    let readers = ["a", "b", "c", "d"].map(|name| of(name, Mode::Read));
    for reader in &readers {
        reader.acquire().await.unwrap();
        states_its_lease(&world, &contender(reader)).await;
    }
    let writer = of("writer", Mode::Write);
    queued_at(&writer, 4).await;
    let sessions = readers.each_ref().map(|reader| reader.status().session.unwrap());
    let died = world.now();
    drop(readers);
    state(&writer, LockState::Held).await;
    assert!(sessions.iter().all(|session| world.is_alive(*session)));
    let took = world.now() - died;
    assert!(took < L + L / 2, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn the_next_holder_says_whose_place_it_took_and_after_how_long_a_silence() {
    let world = world_of(0);
    let pod = Pod {
        namespace: "shop".into(),
        name: "report-1".into(),
        uid: "u-1".into(),
        node: "n1".into(),
    };
    let mut options = with_lease();
    options.identity.pod = Some(pod.clone());
    let holder = lock_with(&world, "holder", options);
    let count = Arc::new(Takeovers::default());
    let heir = LockOptions {
        observer: Some(count.clone()),
        ..with_lease()
    };
    let heir = lock_with(&world, "heir", heir);
    holder.acquire().await.unwrap();
    queued_at(&heir, 1).await;
    let dead = contender(&holder);
    states_its_lease(&world, &dead).await;
    drop(holder);
    state(&heir, LockState::Held).await;
    let own = contender(&heir);
    eventually("it says so", || {
        let said = ContenderData::parse(&world.node(&own).unwrap().data);
        said.is_held() && said.took_over.is_some()
    })
    .await;
    let said = ContenderData::parse(&world.node(&own).unwrap().data);
    let took_over = said.took_over.unwrap();
    assert_eq!(format!("{ROOT}/{}", took_over.contender), dead);
    assert_eq!(took_over.pod, Some(pod));
    let silence = Duration::from_millis(took_over.silent_millis);
    assert!(silence >= L && silence < L * 2, "{silence:?}");
    assert_eq!(count.count(), 1);
}
