//! Answers that are worth keeping for a while, within a bound of memory. Of many who ask the same at once, one asks.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

/// What an entry takes beside its question and its answer, in bytes: two nodes of maps and three counted boxes.
const ENTRY: usize = 256;

/// What something takes beside itself, in bytes: who asks names it, and may make it long.
pub trait Weigh {
    /// In bytes.
    fn weight(&self) -> usize;
}

/// Answers by question.
#[derive(Debug)]
pub struct Cache<K, V> {
    life: Duration,
    /// In bytes.
    capacity: usize,
    entries: Mutex<Entries<K, V>>,
}

#[derive(Debug)]
struct Entries<K, V> {
    by_question: HashMap<Arc<K>, Entry<V>>,
    /// By number. All live equally long, so the first is also the first to end.
    by_age: BTreeMap<u64, Arc<K>>,
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry<V> {
    number: u64,
    until: Instant,
    bytes: usize,
    answer: Arc<OnceCell<V>>,
}

/// Somebody who asks, or waits for one who does. The entry goes with the last of them, unless there is an answer.
struct Asking<'a, K: Eq + Hash + Weigh, V> {
    cache: &'a Cache<K, V>,
    question: Arc<K>,
    number: u64,
    answer: Option<Arc<OnceCell<V>>>,
}

impl<K: Eq + Hash + Weigh, V: Clone + Weigh> Cache<K, V> {
    /// Keeps answers for `life`, counted from the question, and no more than take `capacity` bytes together: then the
    /// oldest go.
    pub fn new(life: Duration, capacity: usize) -> Self {
        Self {
            life,
            capacity,
            entries: Mutex::new(Entries {
                by_question: HashMap::new(),
                by_age: BTreeMap::new(),
                bytes: 0,
                next: 0,
            }),
        }
    }

    /// The kept answer, or that of `ask`. Errors are not kept, and nothing of their questions.
    ///
    /// # Errors
    /// As `ask`.
    pub async fn get<E, F>(&self, question: K, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        let asking = self.asking(question);
        let cell = asking.answer.as_ref().expect("it is there until it is dropped");
        let answer = cell.get_or_try_init(ask).await?.clone();
        let mut entries = self.entries();
        entries.weigh(&asking.question, asking.number, answer.weight());
        entries.shrink(self.capacity);
        drop(entries);
        Ok(answer)
    }

    fn asking(&self, question: K) -> Asking<'_, K, V> {
        let now = Instant::now();
        let question = Arc::new(question);
        let mut entries = self.entries();
        entries.expire(now);
        if !entries.by_question.contains_key(&question) {
            let number = entries.next;
            entries.next += 1;
            let bytes = ENTRY + question.weight();
            let entry = Entry {
                number,
                until: now + self.life,
                bytes,
                answer: Arc::default(),
            };
            entries.bytes += bytes;
            entries.by_age.insert(number, Arc::clone(&question));
            entries.by_question.insert(Arc::clone(&question), entry);
        }
        let entry = &entries.by_question[&question];
        let (number, answer) = (entry.number, Some(Arc::clone(&entry.answer)));
        entries.shrink(self.capacity);
        drop(entries);
        Asking {
            cache: self,
            question,
            number,
            answer,
        }
    }
}

impl<K, V> Cache<K, V> {
    fn entries(&self) -> MutexGuard<'_, Entries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash + Weigh, V> Entries<K, V> {
    /// Notes what an answer takes, once.
    fn weigh(&mut self, question: &Arc<K>, number: u64, weight: usize) {
        let bytes = ENTRY + question.weight() + weight;
        if let Some(entry) = self.by_question.get_mut(question)
            && entry.number == number
        {
            self.bytes = self.bytes - entry.bytes + bytes;
            entry.bytes = bytes;
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((_, oldest)) = self.by_age.first_key_value()
            && self
                .by_question
                .get(oldest)
                .is_none_or(|entry| entry.until <= now)
        {
            self.remove_oldest();
        }
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

impl<K: Eq + Hash + Weigh, V> Drop for Asking<'_, K, V> {
    fn drop(&mut self) {
        let mut entries = self.cache.entries();
        let is_answered = self.answer.take().is_none_or(|answer| answer.initialized());
        let is_unwanted =
            |entry: &Entry<V>| entry.number == self.number && Arc::strong_count(&entry.answer) == 1;
        if !is_answered && entries.by_question.get(&self.question).is_some_and(is_unwanted) {
            entries.by_age.remove(&self.number);
            if let Some(entry) = entries.by_question.remove(&self.question) {
                entries.bytes -= entry.bytes;
            }
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

impl Weigh for crate::inject::Replicas {
    fn weight(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    const MUCH: usize = 1 << 20;

    async fn get(cache: &Cache<String, String>, key: &str, answer: Result<String, ()>) -> Result<String, ()> {
        cache.get(key.to_owned(), || async { answer }).await
    }

    fn kept(cache: &Cache<String, String>) -> (usize, usize) {
        let entries = cache.entries();
        assert_eq!(entries.by_age.len(), entries.by_question.len());
        (entries.by_age.len(), entries.bytes)
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
