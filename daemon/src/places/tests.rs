use super::*;
use futures_util::FutureExt;

fn source(last: u8) -> Source {
    Source::of(IpAddr::from([10, 0, 0, last]))
}

fn is_taken(place: &Place) -> bool {
    place.is_taken().now_or_never().is_some()
}

#[test]
fn nothing_is_taken_while_places_are_free() {
    let places = Places::new(2);
    let first = places.take(source(1));
    drop(places.take(source(1)));
    let second = places.take(source(1));
    assert!(!is_taken(&first) && !is_taken(&second));
}

#[test]
fn the_oldest_silent_connection_of_the_source_that_has_the_most_gives_way() {
    let places = Places::new(4);
    let lone = places.take(source(1));
    let greedy: Vec<_> = (0..3).map(|_| places.take(source(2))).collect();
    let newcomer = places.take(source(3));
    assert!(is_taken(&greedy[0]));
    assert!(!is_taken(&lone) && !is_taken(&greedy[1]) && !is_taken(&greedy[2]));
    // Also if the greedy source itself connects.
    let another = places.take(source(2));
    assert!(is_taken(&greedy[1]));
    assert!(!is_taken(&lone) && !is_taken(&newcomer) && !is_taken(&another));
}

fn at(millis: u64) -> BootInstant {
    BootInstant::from_nanos(millis * 1_000_000)
}

#[test]
fn who_has_asked_keeps_its_place_before_the_silent_and_the_idle() {
    let places = Places::new(3);
    let [asking, idle, silent] = [1, 1, 2].map(|host| places.take_at(source(host), at(0)));
    asking.stand(Standing::Asking);
    idle.stand(Standing::Idle);
    let newcomer = places.take_at(source(3), at(100));
    newcomer.stand(Standing::Asking);
    assert!(is_taken(&silent) && !is_taken(&asking) && !is_taken(&idle));
    let newcomer = places.take_at(source(3), at(200));
    newcomer.stand(Standing::Asking);
    assert!(is_taken(&idle) && !is_taken(&asking));
    // If all wait for an answer, a new connection still gets a place.
    let last = places.take_at(source(4), at(300));
    assert!(!is_taken(&last));
}

#[test]
fn a_source_that_asks_at_nearly_all_places_gives_way_to_one_that_has_said_nothing_yet() {
    let places = Places::new(256);
    let greedy: Vec<_> = (0..255).map(|_| places.take_at(source(1), at(0))).collect();
    greedy.iter().for_each(|place| place.stand(Standing::Asking));
    let caller = places.take_at(source(2), at(1000));
    for flood in 0..100 {
        let newcomer = places.take_at(source(1), at(1000 + flood));
        assert!(!is_taken(&caller), "after {flood}");
        newcomer.stand(Standing::Asking);
    }
}

/// An API server with many reviews under way, and a source that has nearly as many connections with this standing.
fn busy(others: Standing) -> (Places, Vec<Place>, Vec<Place>) {
    let places = Places::new(256);
    let busy: Vec<_> = (0..146).map(|_| places.take_at(source(1), at(0))).collect();
    busy.iter().for_each(|place| place.stand(Standing::Asking));
    let others_places: Vec<_> = (0..110).map(|_| places.take_at(source(2), at(0))).collect();
    others_places.iter().for_each(|place| place.stand(others));
    (places, busy, others_places)
}

#[test]
fn a_source_with_much_to_ask_keeps_its_places_before_another_one_that_says_nothing_or_lets_many_rest() {
    for (others, most) in [(Standing::Silent, 110), (Standing::Idle, 110 - RESTING)] {
        let (places, busy, hoarded) = busy(others);
        let reviews: Vec<_> = (0..most).map(|_| places.take_at(source(1), at(1000))).collect();
        assert!(!busy.iter().chain(&reviews).any(is_taken), "{others:?}");
        assert_eq!(hoarded.iter().filter(|place| is_taken(place)).count(), most);
    }
}

#[test]
fn a_handshake_of_the_source_that_has_the_most_has_its_grace_before_its_long_reviews() {
    let (places, busy, others) = busy(Standing::Asking);
    let handshake = places.take_at(source(1), at(1000));
    let newcomer = places.take_at(source(3), at(1010));
    assert!(!is_taken(&handshake) && !is_taken(&newcomer) && !others.iter().any(is_taken));
    assert!(is_taken(&busy[0]) && is_taken(&busy[1]));
}

#[test]
fn a_flood_of_connections_displaces_its_own_before_those_of_others_that_rest_or_ask() {
    let places = Places::new(256);
    let others: Vec<_> = (0..100).map(|_| places.take_at(source(1), at(0))).collect();
    others.iter().for_each(|place| place.stand(Standing::Asking));
    others[..2].iter().for_each(|place| place.stand(Standing::Idle));
    let flood: Vec<_> = (0..1000).map(|_| places.take_at(source(2), at(1000))).collect();
    assert!(!others.iter().any(is_taken));
    assert_eq!(flood.iter().filter(|place| is_taken(place)).count(), 1000 - 156);
}

#[test]
fn many_sources_that_ask_leave_a_newcomer_the_time_to_ask_and_then_its_place() {
    let places = Places::new(256);
    let greedy: Vec<_> = (0..256)
        .map(|n| places.take_at(source((n % 4) as u8), at(0)))
        .collect();
    greedy.iter().for_each(|place| place.stand(Standing::Asking));
    let caller = places.take_at(source(9), at(1000));
    let mut flood: Vec<_> = (0..99)
        .map(|n| places.take_at(source((n % 4) as u8), at(1000 + n)))
        .collect();
    assert!(!is_taken(&caller), "its grace lasts");
    caller.stand(Standing::Asking);
    flood.extend((0..500).map(|n| places.take_at(source((n % 4) as u8), at(1100 + n))));
    assert!(!is_taken(&caller), "it has the least of all");
}

#[test]
fn a_place_that_was_taken_is_not_freed_a_second_time() {
    let places = Places::new(1);
    let first = places.take(source(1));
    let second = places.take(source(1));
    assert!(is_taken(&first));
    drop(first);
    let _third = places.take(source(1));
    assert!(is_taken(&second));
}

#[test]
fn the_addresses_of_one_ipv6_network_are_one_source() {
    let source = |text: &str| Source::of(text.parse().unwrap());
    assert_eq!(source("fd00::1"), source("fd00::ffff:1"));
    assert_ne!(source("fd00::1"), source("fd00:0:0:1::1"));
    assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
    assert_ne!(source("10.0.0.1"), source("10.0.0.2"));
}

#[test]
fn memory_goes_to_who_has_less_from_the_slow_of_who_has_most() {
    let places = Places::with_memory(10, 10);
    let [slow, asking, small] = [1, 1, 2].map(|host| places.take(source(host)));
    for (place, bytes) in [(&slow, 4), (&asking, 4), (&small, 2)] {
        assert!(place.hold(bytes).now_or_never().is_some());
    }
    asking.stand(Standing::Asking);
    small.stand(Standing::Asking);
    let newcomer = places.take(source(3));
    let mut wants = std::pin::pin!(newcomer.hold(4));
    assert!(wants.as_mut().now_or_never().is_none(), "it is not free yet");
    assert!(is_taken(&slow) && !is_taken(&asking) && !is_taken(&small));
    drop(slow);
    assert!(newcomer.hold(4).now_or_never().is_some());
    // Sources with no more than the new one would have keep it.
    let last = places.take(source(4));
    assert!(last.hold(4).now_or_never().is_none());
    assert!(!is_taken(&asking) && !is_taken(&newcomer));
    asking.let_go();
    assert!(last.hold(4).now_or_never().is_some());
}

#[test]
fn a_source_that_has_everything_gives_way_though_it_has_asked() {
    let places = Places::with_memory(10, 10);
    let greedy: Vec<_> = (0..5).map(|_| places.take(source(1))).collect();
    for place in &greedy {
        assert!(place.hold(2).now_or_never().is_some());
        place.stand(Standing::Asking);
    }
    let other = places.take(source(2));
    assert!(other.hold(3).now_or_never().is_none());
    let gone = greedy.iter().filter(|place| is_taken(place)).count();
    assert_eq!(gone, 2, "no more than are needed");
}
