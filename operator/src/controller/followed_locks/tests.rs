use super::*;

use std::pin::Pin;
use std::sync::Mutex;

use futures_util::FutureExt;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

const FEW: Bounds = Bounds {
    of_namespace: 3,
    in_all: 5,
};

type Events = Pin<Box<dyn Stream<Item = Result<Event<DistributedLock>, Error>> + Send>>;

/// An API server that says what a test wants, and the census of its locks.
struct Server {
    census: Events,
    left_out: Gauge<u64, AtomicU64>,
    /// Of each watch that was begun.
    says: Arc<Mutex<Vec<mpsc::UnboundedSender<Event<DistributedLock>>>>>,
}

/// A lock that was made at this second.
fn lock(namespace: &str, name: &str, second: i64) -> DistributedLock {
    let mut lock = DistributedLock::new(name, DistributedLockSpec::default());
    lock.metadata.namespace = Some(namespace.into());
    lock.metadata.creation_timestamp = Some(Time(Timestamp::from_second(second).unwrap()));
    lock
}

impl Server {
    fn new() -> Self {
        let (left_out, says) = (Gauge::default(), Arc::<Mutex<Vec<_>>>::default());
        let watch = {
            let says = Arc::clone(&says);
            move || {
                let (sender, mut receiver) = mpsc::unbounded_channel();
                says.lock().unwrap().push(sender);
                Box::pin(stream::poll_fn(move |cx| receiver.poll_recv(cx)).map(Ok)) as Events
            }
        };
        Self {
            census: Box::pin(census(watch, FEW, left_out.clone())),
            left_out,
            says,
        }
    }

    fn watches(&self) -> usize {
        self.says.lock().unwrap().len()
    }

    fn say(&self, event: Event<DistributedLock>) {
        self.says.lock().unwrap().last().unwrap().send(event).unwrap();
    }

    /// A first list, and what comes of it.
    fn list(&mut self, locks: impl IntoIterator<Item = DistributedLock>) -> Vec<String> {
        self.say(Event::Init);
        locks
            .into_iter()
            .for_each(|lock| self.say(Event::InitApply(lock)));
        assert_eq!(self.heard(), [""; 0], "half a list is not passed on");
        self.say(Event::InitDone);
        let mut heard = self.heard();
        assert_eq!(heard.remove(0), "begin");
        assert_eq!(heard.pop().as_deref(), Some("end"));
        heard
    }

    /// A later list, and what comes of it.
    fn list_again(&mut self, locks: impl IntoIterator<Item = DistributedLock>) -> Vec<String> {
        self.say(Event::Init);
        locks
            .into_iter()
            .for_each(|lock| self.say(Event::InitApply(lock)));
        self.say(Event::InitDone);
        self.heard()
    }

    /// What comes through.
    fn heard(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        // All that was said is there.
        while let Some(Some(event)) = tokio::task::unconstrained(self.census.next()).now_or_never() {
            heard.push(match event.unwrap() {
                Event::Init => "begin".to_owned(),
                Event::InitDone => "end".to_owned(),
                Event::InitApply(lock) | Event::Apply(lock) => format!("+{}", key(&lock)),
                Event::Delete(lock) => format!("-{}", key(&lock)),
            });
        }
        heard
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_list_the_oldest_are_followed_so_many_of_a_namespace_and_in_all_in_whichever_order_they_come() {
    let mut all: Vec<_> = (0..4)
        .map(|at| lock("evil", &format!("e{at}"), 10 - at))
        .chain((0..4).map(|at| lock("shop", &format!("s{at}"), 20 + at)))
        .collect();
    let expected = ["+evil/e3", "+evil/e2", "+evil/e1", "+shop/s0", "+shop/s1"];
    for _ in 0..all.len() {
        let mut server = Server::new();
        assert_eq!(server.list(all.clone()), expected);
        assert_eq!(server.left_out.get(), 3);
        all.rotate_left(1);
    }
}

#[tokio::test(start_paused = true)]
async fn who_makes_more_locks_than_are_followed_takes_no_place_from_those_that_are_there_or_from_other_namespaces()
 {
    let mut server = Server::new();
    let evil = |range: std::ops::Range<i64>| range.map(|at| lock("evil", &format!("e{at}"), at));
    assert_eq!(server.list(evil(0..3)), ["+evil/e0", "+evil/e1", "+evil/e2"]);
    assert_eq!(server.left_out.get(), 0);
    evil(3..1000).for_each(|lock| server.say(Event::Apply(lock)));
    server.say(Event::Apply(lock("shop", "report", 1000)));
    server.say(Event::Apply(lock("evil", "e1", 1)));
    server.say(Event::Delete(lock("evil", "e500", 500)));
    assert_eq!(server.heard(), ["+shop/report", "+evil/e1"]);
    assert_eq!(server.left_out.get(), 1);
    // The API server has them listed again.
    let all = evil(0..1000).chain([lock("shop", "report", 1000)]);
    let followed = ["+evil/e0", "+evil/e1", "+evil/e2", "+shop/report"];
    assert_eq!(server.list_again(all.clone()), followed);
    assert_eq!(server.left_out.get(), 997);
    // After a restart they are the same.
    let mut server = Server::new();
    assert_eq!(server.list(all), followed);
    assert_eq!(server.left_out.get(), 997);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_is_free_goes_to_the_oldest_lock_that_was_left_out() {
    let mut server = Server::new();
    let evil = |range: std::ops::Range<i64>| range.map(|at| lock("evil", &format!("e{at}"), at));
    server.list(evil(0..5));
    // As of an object that is too long to be read: it has no creation timestamp.
    let mut gone = lock("evil", "e1", 1);
    gone.metadata.creation_timestamp = None;
    server.say(Event::Delete(gone));
    server.say(Event::Apply(lock("evil", "young", 100)));
    assert_eq!(server.heard(), ["-evil/e1"]);
    tokio::time::advance(AGAIN - Duration::from_secs(1)).await;
    assert_eq!((server.heard(), server.watches()), (vec![], 1));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!((server.heard(), server.watches()), (vec![], 2));
    let all = evil(0..1).chain(evil(2..5)).chain([lock("evil", "young", 100)]);
    assert_eq!(server.list_again(all), ["+evil/e0", "+evil/e2", "+evil/e3"]);
    assert_eq!(server.left_out.get(), 2);
    // It ends when none is left out.
    server.say(Event::Delete(lock("evil", "e4", 4)));
    server.say(Event::Delete(lock("evil", "young", 100)));
    assert_eq!(server.heard(), [""; 0]);
    tokio::time::advance(AGAIN).await;
    assert_eq!((server.heard(), server.watches()), (vec![], 3));
    server.list_again(evil(0..1).chain(evil(2..4)));
    assert_eq!(server.left_out.get(), 0);
    server.say(Event::Delete(lock("evil", "e0", 0)));
    server.say(Event::Apply(lock("evil", "new", 200)));
    assert_eq!(server.heard(), ["-evil/e0", "+evil/new"]);
    tokio::time::advance(AGAIN * 2).await;
    assert_eq!((server.heard(), server.watches()), (vec![], 3));
}

#[tokio::test(start_paused = true)]
async fn what_a_later_list_has_not_is_gone_and_its_place_goes_to_another_with_the_next_one() {
    let mut server = Server::new();
    let evil = |range: std::ops::Range<i64>| range.map(|at| lock("evil", &format!("e{at}"), at));
    server.list(evil(0..5));
    // Half a list changes nothing but what is in it.
    server.say(Event::Init);
    server.say(Event::InitApply(lock("evil", "e2", 2)));
    assert_eq!(server.heard(), ["+evil/e2"]);
    assert_eq!(
        server.list_again(evil(1..5)),
        ["+evil/e1", "+evil/e2", "-evil/e0"]
    );
    assert_eq!(server.left_out.get(), 2);
    tokio::time::advance(AGAIN).await;
    assert_eq!((server.heard(), server.watches()), (vec![], 2));
    assert_eq!(
        server.list_again(evil(1..5)),
        ["+evil/e1", "+evil/e2", "+evil/e3"]
    );
    assert_eq!(server.left_out.get(), 1);
}
