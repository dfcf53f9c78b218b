//! How many lock roots a namespace may have. With `deletionPolicy: Retain` they outlive their objects, whose number is limited by
//! itself; each replica keeps all roots in memory.

use lockkeeper_crds::lock::Reason;

use crate::controller::followed_locks::BOUNDS;
use crate::lock_key::LockKey;
use crate::problem::Problem;
use crate::zookeeper::queues::View;
use crate::zookeeper::queues::picture::Queue;

/// As many as locks of a namespace are followed: one of these whose root is there gets no other one.
const MOST: usize = BOUNDS.of_namespace;

/// Why no root is made for a lock that has none.
pub(super) fn too_many(view: &View, key: &LockKey, queue: &Queue) -> Option<Problem> {
    if queue.exists {
        return None;
    }
    let count = view.roots_of(&key.namespace);
    (count >= MOST).then(|| {
        let message = format!(
            "namespace {} has {count} lock roots in ZooKeeper, and the operator makes no more: those of deleted locks \
             with deletionPolicy Retain stay. To remove one, create its lock again with deletionPolicy Delete, and \
             delete it",
            key.namespace
        );
        Problem::new(Reason::ProvisioningFailed, message)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_namespace_gets_no_more_roots_than_locks_are_followed_and_others_do() {
        let view = View::new(Arc::default());
        let key = |namespace: &str, name: usize| LockKey::new(namespace, format!("lock-{name}"));
        let of = |key: &LockKey| too_many(&view, key, &view.queue(key));
        let make = |key: LockKey| view.edit(&key.clone(), move |picture| picture.set_exists(&key, true));
        for name in 1..MOST {
            make(key("shop", name));
        }
        let next = key("shop", MOST);
        assert!(of(&next).is_none());
        make(next.clone());
        assert!(of(&next).is_none(), "its root is there");
        let problem = of(&key("shop", MOST + 1)).unwrap();
        assert!(
            problem
                .message
                .starts_with("namespace shop has 10000 lock roots in ZooKeeper"),
            "{}",
            problem.message
        );
        assert!(of(&key("other", 1)).is_none());
    }
}
