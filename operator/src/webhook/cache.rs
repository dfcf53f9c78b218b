//! Answers that are worth keeping for a while. Of many who ask the same at once, one asks.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

/// Most answers that are kept.
const CAPACITY: usize = 4096;

/// Answers by question.
#[derive(Debug)]
pub struct Cache<K, V> {
    life: Duration,
    entries: Mutex<HashMap<K, Entry<V>>>,
}

#[derive(Debug)]
struct Entry<V> {
    until: Instant,
    answer: Arc<OnceCell<V>>,
}

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    /// Keeps answers for `life`, counted from the question.
    pub fn new(life: Duration) -> Self {
        Self {
            life,
            entries: Mutex::default(),
        }
    }

    /// The kept answer, or that of `ask`. Errors are not kept.
    ///
    /// # Errors
    /// As `ask`.
    pub async fn get<E, F>(&self, question: K, ask: impl FnOnce() -> F) -> Result<V, E>
    where
        F: Future<Output = Result<V, E>>,
    {
        self.cell(question).get_or_try_init(ask).await.cloned()
    }

    fn cell(&self, question: K) -> Arc<OnceCell<V>> {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if entries.len() >= CAPACITY {
            entries.retain(|_, entry| entry.until > now);
            // Full of fresh ones: whoever asks for so many different things is not helped by a cache.
            if entries.len() >= CAPACITY {
                entries.clear();
            }
        }
        let fresh = || Entry {
            until: now + self.life,
            answer: Arc::default(),
        };
        let entry = entries.entry(question).or_insert_with(fresh);
        if entry.until <= now {
            *entry = fresh();
        }
        Arc::clone(&entry.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test(start_paused = true)]
    async fn fifty_who_ask_at_once_get_one_answer_and_later_a_new_one() {
        let cache = Cache::new(Duration::from_secs(10));
        let asked = AtomicU32::new(0);
        let ask = || {
            cache.get("key", || async {
                tokio::task::yield_now().await;
                Ok::<_, Infallible>(asked.fetch_add(1, Ordering::Relaxed))
            })
        };
        let answers = futures_util::future::join_all((0..50).map(|_| ask())).await;
        assert!(answers.iter().all(|answer| *answer == Ok(0)), "{answers:?}");
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(ask().await, Ok(1));
    }

    #[tokio::test]
    async fn an_error_is_not_kept() {
        let cache = Cache::new(Duration::from_secs(10));
        assert_eq!(cache.get("key", || async { Err::<u8, _>("no") }).await, Err("no"));
        assert_eq!(cache.get("key", || async { Ok::<_, &str>(1) }).await, Ok(1));
    }
}
