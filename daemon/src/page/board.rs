//! The locks that the page shows, and what has changed since a reader looked last. State with one owner: the follower
//! writes, and each open page reads.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// Locks that are gone are remembered for readers that have not heard of it: so many, and then all readers get
/// everything anew.
const GONE_REMEMBERED: usize = 1_000;

/// All locks, in JSON, by their keys.
pub struct Board {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    /// Readers with an older version get everything anew.
    complete_since: u64,
    locks: BTreeMap<String, Entry>,
    gone: usize,
    trouble: Option<Arc<str>>,
    left_out: Option<Arc<str>>,
    /// Whether all locks have been read once. Before that, no lock does not mean that there is none.
    is_read: bool,
}

struct Entry {
    version: u64,
    /// Nothing: the lock is gone.
    json: Option<Arc<str>>,
}

/// What a reader has to hear.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct News {
    /// What it knows after this.
    pub(super) version: u64,
    /// It has to forget all others.
    pub(super) is_all: bool,
    /// Whether the locks have been read at all.
    pub(super) is_read: bool,
    /// Locks that are new or have changed, in JSON.
    pub(super) changed: Vec<Arc<str>>,
    /// Keys of locks that are gone.
    pub(super) gone: Vec<String>,
    /// Why nothing new is heard, if that is so.
    pub(super) trouble: Option<Arc<str>>,
    /// What is not shown, if anything is left out.
    pub(super) left_out: Option<Arc<str>>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            version: watch::Sender::new(0),
        }
    }
}

impl Board {
    /// These locks, and no others.
    pub fn replace(&self, locks: BTreeMap<String, String>) {
        self.change(|state| {
            let known: Vec<_> = state.locks.keys().cloned().collect();
            for key in known.into_iter().filter(|key| !locks.contains_key(key)) {
                state.remove(&key);
            }
            for (key, json) in locks {
                state.set(key, json);
            }
            state.is_read = true;
            state.trouble = None;
        });
    }

    /// The source of the locks can be asked, although nothing has changed.
    pub fn is_followed(&self) {
        if self.state().trouble.is_some() {
            self.change(|state| state.trouble = None);
        }
    }

    /// This lock is new or has changed.
    pub fn set(&self, key: String, json: String) {
        self.change(|state| {
            state.set(key, json);
            state.trouble = None;
        });
    }

    /// This lock is gone.
    pub fn remove(&self, key: &str) {
        self.change(|state| {
            state.remove(key);
            state.trouble = None;
        });
    }

    /// Nothing new is heard, for this reason.
    pub fn trouble(&self, why: String) {
        self.change(|state| state.trouble = Some(why.into()));
    }

    /// All locks that are there have been told of, and the source of the locks can be asked.
    pub fn is_read(&self) {
        let is_new = {
            let state = self.state();
            !state.is_read || state.trouble.is_some()
        };
        if is_new {
            self.change(|state| {
                state.is_read = true;
                state.trouble = None;
            });
        }
    }

    /// What is not shown, and why; nothing if everything is.
    pub fn left_out(&self, what: Option<String>) {
        let what = what.map(Arc::from);
        if self.state().left_out != what {
            self.change(|state| state.left_out = what);
        }
    }

    /// Tells of each change from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// What has changed since a version; everything for a reader that knows nothing yet.
    pub(super) fn since(&self, known: Option<u64>) -> News {
        let state = self.state();
        let is_all = known.is_none_or(|known| known < state.complete_since);
        let known = known.unwrap_or(0);
        let newer = state
            .locks
            .iter()
            .filter(|(_, entry)| is_all || entry.version > known);
        let (mut changed, mut gone) = (Vec::new(), Vec::new());
        for (key, entry) in newer {
            match &entry.json {
                Some(json) => changed.push(Arc::clone(json)),
                None if is_all => {}
                None => gone.push(key.clone()),
            }
        }
        News {
            version: state.version,
            is_all,
            is_read: state.is_read,
            changed,
            gone,
            trouble: state.trouble.clone(),
            left_out: state.left_out.clone(),
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let version = {
            let mut state = self.state();
            state.version += 1;
            change(&mut state);
            state.version
        };
        self.version.send_replace(version);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set(&mut self, key: String, json: String) {
        let version = self.version;
        let entry = self.locks.get(&key);
        if entry.is_some_and(|entry| entry.json.is_none()) {
            self.gone -= 1;
        }
        if entry.is_none_or(|entry| entry.json.as_deref() != Some(&json)) {
            let json = Some(json.into());
            self.locks.insert(key, Entry { version, json });
        }
    }

    fn remove(&mut self, key: &str) {
        let version = self.version;
        let Some(entry) = self.locks.get_mut(key).filter(|entry| entry.json.is_some()) else {
            return;
        };
        *entry = Entry { version, json: None };
        self.gone += 1;
        if self.gone > GONE_REMEMBERED {
            self.locks.retain(|_, entry| entry.json.is_some());
            self.gone = 0;
            self.complete_since = version;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(news: &News) -> Vec<&str> {
        news.changed.iter().map(|json| &**json).collect()
    }

    fn locks(names: &[&str]) -> BTreeMap<String, String> {
        names
            .iter()
            .map(|name| ((*name).to_owned(), format!("{name}1")))
            .collect()
    }

    #[test]
    fn a_reader_gets_everything_first_and_then_only_what_has_changed() {
        let board = Board::default();
        board.replace(locks(&["a", "b", "c"]));
        let first = board.since(None);
        assert!(first.is_all);
        assert_eq!(changed(&first), ["a1", "b1", "c1"]);
        board.set("b".to_owned(), "b2".to_owned());
        board.set("c".to_owned(), "c1".to_owned());
        board.remove("a");
        let next = board.since(Some(first.version));
        assert!(!next.is_all);
        assert_eq!((changed(&next), &next.gone), (vec!["b2"], &vec!["a".to_owned()]));
        let nothing = board.since(Some(next.version));
        assert_eq!((changed(&nothing), nothing.gone.len()), (vec![], 0));
    }

    #[test]
    fn locks_that_a_new_list_lacks_are_gone_and_may_come_back() {
        let board = Board::default();
        board.replace(locks(&["a", "b"]));
        let known = board.since(None).version;
        board.replace(locks(&["b"]));
        let news = board.since(Some(known));
        assert_eq!((changed(&news), &news.gone), (vec![], &vec!["a".to_owned()]));
        board.set("a".to_owned(), "a3".to_owned());
        let news = board.since(Some(known));
        assert_eq!((changed(&news), &news.gone), (vec!["a3"], &vec![]));
    }

    #[test]
    fn what_is_remembered_of_locks_that_are_gone_is_bounded_and_a_reader_that_missed_it_gets_everything() {
        let board = Board::default();
        board.replace(locks(&["a"]));
        let known = board.since(None).version;
        for number in 0..=GONE_REMEMBERED {
            board.set(number.to_string(), "{}".to_owned());
            board.remove(&number.to_string());
        }
        assert_eq!(board.state().locks.len(), 1);
        let news = board.since(Some(known));
        assert!(news.is_all);
        assert_eq!(changed(&news), ["a1"]);
    }

    #[test]
    fn trouble_is_told_until_something_is_heard_again() {
        let board = Board::default();
        board.trouble("the API server is away".to_owned());
        assert_eq!(
            board.since(None).trouble.as_deref(),
            Some("the API server is away")
        );
        assert!(!board.since(None).is_read);
        board.replace(BTreeMap::new());
        assert!(board.since(None).is_read);
        assert_eq!(board.since(None).trouble, None);
        board.trouble("it is away again".to_owned());
        let known = board.since(None).version;
        board.is_followed();
        let news = board.since(Some(known));
        assert_eq!((news.trouble, news.version), (None, known + 1));
        board.is_followed();
        assert_eq!(board.since(None).version, known + 1);
    }

    #[test]
    fn what_is_left_out_is_told_once_and_forgotten_when_everything_is_shown() {
        let board = Board::default();
        board.set("a".to_owned(), "a1".to_owned());
        assert!(!board.since(None).is_read);
        board.left_out(Some("/locks/secret".to_owned()));
        board.is_read();
        let news = board.since(None);
        assert_eq!(
            (news.left_out.as_deref(), news.is_read),
            (Some("/locks/secret"), true)
        );
        board.left_out(Some("/locks/secret".to_owned()));
        board.is_read();
        assert_eq!(board.since(None).version, news.version);
        board.left_out(None);
        assert_eq!(board.since(Some(news.version)).left_out, None);
    }
}
