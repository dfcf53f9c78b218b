//! Where things are in ZooKeeper.

use std::sync::Arc;

use crate::lock_key::LockKey;

/// The tree below the root that all locks of a cluster share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    root: String,
}

/// What a path below the locks is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    /// The parent of all namespaces.
    Locks,
    /// The parent of the locks of a namespace.
    Namespace(Arc<str>),
    Lock(LockKey),
    /// A child of a lock root.
    Contender(LockKey, String),
}

// === impl Layout ===

impl Layout {
    /// Everything below `root`, an absolute path without a slash at its end that begins with the
    /// connect string's chroot.
    pub fn new(root: impl Into<String>) -> Self {
        Self { root: root.into() }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    /// The parent of all namespaces' locks: what is watched.
    pub fn locks(&self) -> String {
        format!("{}/locks", self.root)
    }

    /// The parent of all namespaces' control nodes.
    pub(crate) fn controls(&self) -> String {
        format!("{}/control", self.root)
    }

    pub fn lock(&self, key: &LockKey) -> String {
        format!("{}/locks/{key}", self.root)
    }

    pub fn control(&self, key: &LockKey) -> String {
        format!("{}/control/{key}", self.root)
    }

    pub(crate) fn path(&self, place: &Place) -> String {
        match place {
            Place::Locks => self.locks(),
            Place::Namespace(namespace) => format!("{}/locks/{namespace}", self.root),
            Place::Lock(key) => self.lock(key),
            Place::Contender(key, name) => format!("{}/{name}", self.lock(key)),
        }
    }

    /// Reads a path; `None` for what is elsewhere or deeper than a contender.
    pub(crate) fn place(&self, path: &str) -> Option<Place> {
        let below = path.strip_prefix(&self.root)?.strip_prefix("/locks")?;
        if below.is_empty() {
            return Some(Place::Locks);
        }
        let mut names = below.strip_prefix('/')?.split('/');
        let namespace: Arc<str> = names.next()?.into();
        let Some(name) = names.next() else {
            return Some(Place::Namespace(namespace));
        };
        let key = LockKey::new(namespace, name);
        match (names.next(), names.next()) {
            (None, _) => Some(Place::Lock(key)),
            (Some(contender), None) => Some(Place::Contender(key, contender.to_owned())),
            (Some(_), Some(_)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_read_back_from_its_path() {
        let layout = Layout::new("/chroot/lockkeeper");
        let key = LockKey::new("shop", "report");
        for place in [
            Place::Locks,
            Place::Namespace("shop".into()),
            Place::Lock(key.clone()),
            Place::Contender(key, "_c_x-lock-0000000001".into()),
        ] {
            assert_eq!(layout.place(&layout.path(&place)), Some(place));
        }
    }

    #[test]
    fn what_is_elsewhere_or_deeper_is_no_place() {
        let layout = Layout::new("/lockkeeper");
        for path in [
            "/other",
            "/lockkeeper",
            "/lockkeeper/control/a/b",
            "/lockkeeper/lockss/a",
            "/lockkeeper/locks/a/b/c/d",
        ] {
            assert_eq!(layout.place(path), None, "{path}");
        }
    }
}
