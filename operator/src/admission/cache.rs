//! A cache of answers, with a lifetime and a bound on memory. Of callers that ask the same question at once, one asks
//! and the others wait for its answer.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

/// What an entry takes beside its question and its answer, in bytes: two nodes of maps and a counted box.
const ENTRY: usize = 256;

/// Memory of a value beside the value itself, in bytes: the caller chooses the value, and may make it long.
pub(crate) trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

/// Answers by question. `W` identifies the caller: a caller never waits for the question of another caller, which may
/// take long.
#[derive(Debug)]
pub(crate) struct Cache<K, V, W = ()> {
    life: Duration,
    /// In bytes.
    capacity: usize,
    kept: Mutex<Kept<K, V>>,
    /// The questions under way, for callers that wait for the same answer; an entry is dead when no caller waits for
    /// it.
    under_way: Mutex<UnderWay<K, V, W>>,
}

/// By question and caller.
type UnderWay<K, V, W> = HashMap<(K, W), Weak<OnceCell<V>>>;

#[derive(Debug)]
struct Kept<K, V> {
    by_question: HashMap<Arc<K>, Entry<V>>,
    /// By the end of their lives, and by number.
    by_age: BTreeMap<(Instant, u64), Arc<K>>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry<V> {
    bytes: usize,
    answer: V,
}

impl<K: Clone + Eq + Hash + Weigh, V: Clone + Weigh> Cache<K, V> {
    /// The kept answer, or that of `ask`. Neither errors nor their questions are kept.
    ///
    /// # Errors
    /// As `ask`.
    pub(crate) async fn get<E, F>(&self, question: K, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        self.get_for((), question, ask).await
    }
}

impl<K: Clone + Eq + Hash + Weigh, V: Clone + Weigh, W: Eq + Hash> Cache<K, V, W> {
    /// Keeps answers for `life`, counted from the question, and no more than take `capacity` bytes together: then the
    /// oldest go.
    pub(crate) fn new(life: Duration, capacity: usize) -> Self {
        Self {
            life,
            capacity,
            kept: Mutex::new(Kept {
                by_question: HashMap::new(),
                by_age: BTreeMap::new(),
                bytes: 0,
                next: 0,
            }),
            under_way: Mutex::default(),
        }
    }

    /// The kept answer, from any caller, or that of `ask`: of equal callers, one asks. Neither errors nor their
    /// questions are kept.
    ///
    /// # Errors
    /// As `ask`.
    pub(crate) async fn get_for<E, F>(&self, who: W, question: K, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let asked = Instant::now();
        if let Some(answer) = self.kept().known(&question, asked) {
            return Ok(answer);
        }
        let cell = self.cell((question.clone(), who));
        let answer = cell.get_or_try_init(ask).await?.clone();
        // Before the last of them lets the cell go.
        let mut kept = self.kept();
        kept.keep(question, answer.clone(), asked + self.life);
        kept.shrink(self.capacity);
        Ok(answer)
    }

    fn cell(&self, name: (K, W)) -> Arc<OnceCell<V>> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = under_way.get(&name).and_then(Weak::upgrade) {
            return found;
        }
        under_way.retain(|_, cell| cell.strong_count() > 0);
        let new = Arc::default();
        under_way.insert(name, Arc::downgrade(&new));
        new
    }

    fn kept(&self) -> MutexGuard<'_, Kept<K, V>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Weigh, V: Clone + Weigh> Kept<K, V> {
    fn known(&mut self, question: &K, now: Instant) -> Option<V> {
        while let Some((until, _)) = self.by_age.keys().next()
            && *until <= now
        {
            self.remove_oldest();
        }
        self.by_question.get(question).map(|entry| entry.answer.clone())
    }

    /// Keeps an answer, unless another caller that waited for the same one has done so.
    fn keep(&mut self, question: K, answer: V, until: Instant) {
        if self.by_question.contains_key(&question) {
            return;
        }
        let bytes = ENTRY + question.weight() + answer.weight();
        let question = Arc::new(question);
        self.by_age.insert((until, self.next), Arc::clone(&question));
        self.by_question.insert(question, Entry { bytes, answer });
        self.next += 1;
        self.bytes += bytes;
    }

    fn shrink(&mut self, capacity: usize) {
        while self.bytes > capacity && !self.by_age.is_empty() {
            self.remove_oldest();
        }
    }

    fn remove_oldest(&mut self) {
        if let Some((_, oldest)) = self.by_age.pop_first()
            && let Some(entry) = self.by_question.remove(&oldest)
        {
            self.bytes -= entry.bytes;
        }
    }
}

impl Weigh for String {
    fn weight(&self) -> usize {
        self.len()
    }
}

impl Weigh for (String, String) {
    fn weight(&self) -> usize {
        self.0.len() + self.1.len()
    }
}

impl Weigh for bool {
    fn weight(&self) -> usize {
        0
    }
}

impl Weigh for crate::admission::inject::Replicas {
    fn weight(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    const MUCH: usize = 1 << 20;

    async fn get(cache: &Cache<String, String>, key: &str, answer: Result<String, ()>) -> Result<String, ()> {
        cache.get(key.to_owned(), || async { answer }).await
    }

    fn kept(cache: &Cache<String, String>) -> (usize, usize) {
        let kept = cache.kept();
        assert_eq!(kept.by_age.len(), kept.by_question.len());
        (kept.by_age.len(), kept.bytes)
    }

    #[tokio::test(start_paused = true)]
    async fn fifty_who_ask_at_once_get_one_answer_and_later_a_new_one() {
        let cache = Cache::new(Duration::from_secs(10), MUCH);
        let asked = AtomicU32::new(0);
        let ask = || {
            cache.get("key".to_owned(), || async {
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(asked.fetch_add(1, Ordering::Relaxed).to_string())
            })
        };
        let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(
            answers.iter().all(|answer| *answer == Ok("0".to_owned())),
            "{answers:?}"
        );
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(ask().await, Ok("1".to_owned()));
    }

    #[tokio::test]
    async fn nobody_waits_for_what_somebody_else_asks_and_everybody_is_told_what_is_known() {
        let cache = Cache::<String, String, u8>::new(Duration::from_secs(10), MUCH);
        let question = || "key".to_owned();
        let mut stuck = Box::pin(cache.get_for(1, question(), std::future::pending::<Result<_, ()>>));
        assert!(stuck.as_mut().now_or_never().is_none());
        let mut behind = Box::pin(cache.get_for(1, question(), async || Ok::<_, ()>("1".to_owned())));
        assert!(behind.as_mut().now_or_never().is_none(), "of the same, one asks");
        let other = cache.get_for(2, question(), async || Ok::<_, ()>("2".to_owned()));
        assert_eq!(other.now_or_never(), Some(Ok("2".to_owned())));
        let known = cache.get_for(1, question(), std::future::pending::<Result<_, ()>>);
        assert_eq!(known.now_or_never(), Some(Ok("2".to_owned())));
        drop((stuck, behind));
        assert_eq!(
            cache
                .under_way
                .lock()
                .unwrap()
                .values()
                .filter(|one| one.strong_count() > 0)
                .count(),
            0
        );
    }

    #[tokio::test]
    async fn an_error_is_not_kept_and_nothing_of_a_question_that_failed_or_was_given_up() {
        let cache = Cache::new(Duration::from_secs(10), MUCH);
        assert_eq!(get(&cache, "key", Err(())).await, Err(()));
        assert_eq!(kept(&cache), (0, 0));
        let never = cache.get("key".to_owned(), std::future::pending::<Result<_, ()>>);
        let waited = tokio::time::timeout(Duration::from_millis(1), never).await;
        assert!(waited.is_err());
        assert_eq!(kept(&cache), (0, 0));
        assert_eq!(get(&cache, "key", Ok("1".into())).await, Ok("1".into()));
        assert_eq!(kept(&cache).0, 1);
    }

    #[tokio::test]
    async fn long_questions_and_answers_take_no_more_memory_than_there_is_and_the_oldest_go() {
        let cache = Cache::new(Duration::from_secs(3600), MUCH);
        for at in 0..100 {
            let (question, answer) = (format!("{at}{}", "q".repeat(10_000)), "a".repeat(50_000));
            assert_eq!(get(&cache, &question, Ok(answer.clone())).await, Ok(answer));
            assert!(kept(&cache).1 <= MUCH, "{:?}", kept(&cache));
        }
        let (count, _) = kept(&cache);
        assert!((10..20).contains(&count), "{count}");
        let last = format!("99{}", "q".repeat(10_000));
        assert_eq!(
            get(&cache, &last, Err(())).await,
            Ok("a".repeat(50_000)),
            "it is kept"
        );
        // What is longer than everything is answered, and not kept.
        let huge = "a".repeat(2 * MUCH);
        assert_eq!(get(&cache, "huge", Ok(huge.clone())).await, Ok(huge));
        assert_eq!(kept(&cache), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_goes_when_the_next_one_asks() {
        let cache = Cache::new(Duration::from_secs(10), MUCH);
        for at in 0..100 {
            get(&cache, &at.to_string(), Ok("a".into())).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(10)).await;
        get(&cache, "next", Ok("a".into())).await.unwrap();
        assert_eq!(kept(&cache).0, 1);
    }
}
