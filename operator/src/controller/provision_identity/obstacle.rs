//! Whom the rotation of a namespace's identity would cut off.
//!
//! A pod authenticates with its identity and the previous one, and opens its contender to both. After a second rotation
//! it would share no identity with pods that missed the first one: those could neither read its contender nor leave the
//! queue. So the second rotation waits until every contender is open to the identity in use. A keeper opens its contender
//! when the kubelet has written the Secret into its volume. A pod whose keeper cannot do that has to be restarted.

use std::collections::HashSet;

use lockkeeper_daemon::sentence::few;

use crate::controller::error::Error;
use crate::controller::writer::LeasedWay;
use crate::identity::Identity;
use crate::lock_key::LockKey;
use crate::zookeeper::ensemble::Ensemble;
use crate::zookeeper::foreign::{OtherEnsembles, Standing};
use crate::zookeeper::queues::View;
use crate::zookeeper::queues::picture::Queue;

/// Why a rotation that a user asks for has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Obstacle {
    pub(crate) sentence: String,
    /// The locks that have to do with it.
    pub(crate) locks: HashSet<LockKey>,
}

/// Most contenders of a namespace that are looked at before a rotation: some seconds of questions over the connection
/// on which all locks are followed.
const CONTENDERS: usize = 20_000;

/// Finds it. `own` is the ensemble to which `way` leads.
///
/// # Errors
/// Those of the ensemble.
pub(super) async fn obstacle(
    own: &Ensemble,
    others: &OtherEnsembles,
    way: &LeasedWay,
    namespace: &str,
    current: &Identity,
) -> Result<Option<Obstacle>, Error> {
    if let Some(unseen) = unseen(&own.view, namespace) {
        return Ok(Some(unseen));
    }
    let mut behind = way.left_behind(namespace, current.user()).await?;
    for (source, standing) in others.with_identity_of(namespace) {
        let seen = match standing {
            Standing::Up { way, ensemble, .. } => {
                if let Some(unseen) = unseen(&ensemble.view, namespace) {
                    return Ok(Some(unseen));
                }
                way.left_behind(namespace, current.user()).await.ok()
            }
            Standing::Unsure | Standing::Out(_) | Standing::Orphaned(_) => None,
        };
        let Some(seen) = seen else {
            let sentence = format!(
                "the rotation of the namespace's identity waits: the operator cannot see which pods use it in the ensemble {}",
                source.connect
            );
            let locks = others.users_of(&source);
            return Ok(Some(Obstacle { sentence, locks }));
        };
        behind.extend(seen);
    }
    let locks = behind.iter().map(|(key, _)| key.clone()).collect();
    Ok(sentence(&behind).map(|sentence| Obstacle { sentence, locks }))
}

/// More contenders than can be looked at, or some that are not followed.
fn unseen(view: &View, namespace: &str) -> Option<Obstacle> {
    let queues = view.locks_of(namespace).into_iter();
    let queues: Vec<_> = queues.map(|key| (view.queue(&key), key)).collect();
    too_many(&queues)
}

fn too_many(queues: &[(Queue, LockKey)]) -> Option<Obstacle> {
    let waits = |why: String, locks| {
        let sentence = format!("the rotation of the namespace's identity waits: {why}");
        Some(Obstacle { sentence, locks })
    };
    if let Some((_, key)) = queues.iter().find(|(queue, _)| queue.excess().is_some()) {
        let why = format!(
            "the operator does not follow the queue of {}; its status says why",
            key.name
        );
        return waits(why, HashSet::from([key.clone()]));
    }
    let contenders: usize = queues.iter().map(|(queue, _)| queue.contenders().len()).sum();
    if contenders > CONTENDERS {
        let locks = queues.iter().map(|(_, key)| key.clone()).collect();
        let why = format!(
            "its locks have {contenders} contenders, and the operator looks at {CONTENDERS} at most; scale down first"
        );
        return waits(why, locks);
    }
    None
}

fn sentence(behind: &[(LockKey, String)]) -> Option<String> {
    let named = behind.iter().map(|(key, who)| format!("{who} at {}", key.name));
    (!behind.is_empty()).then(|| {
        format!(
            "the rotation of the namespace's identity waits: {} does not know the identity in use yet; the \
             kubelet brings it within some minutes, or else restart the pod",
            few(named)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zookeeper::queues::picture::{Contender, Excess, Picture};
    use lockkeeper_lock::FencingToken;

    #[test]
    fn a_rotation_is_refused_where_the_contenders_cannot_all_be_looked_at() {
        let queues = |count: usize| {
            let mut picture = Picture::default();
            let keys: Vec<_> = (0..3)
                .map(|at| LockKey::new("shop", format!("lock-{at}")))
                .collect();
            for at in 0..count {
                let contender = Contender::read(format!("_c_x-lock-{at:010}"), FencingToken(1), true, b"");
                picture.put(&keys[at % 3], contender);
            }
            let queues = keys
                .into_iter()
                .map(|key| (picture.queue(&key).unwrap().clone(), key));
            queues.collect::<Vec<_>>()
        };
        assert_eq!(too_many(&queues(CONTENDERS)), None);
        let obstacle = too_many(&queues(CONTENDERS + 1)).unwrap();
        assert!(
            obstacle.sentence.contains("20001 contenders"),
            "{}",
            obstacle.sentence
        );
        assert_eq!(obstacle.locks.len(), 3);
        let mut picture = Picture::default();
        let key = LockKey::new("shop", "report");
        picture.give_up(&key, Excess::Names);
        let obstacle = too_many(&[(picture.queue(&key).unwrap().clone(), key)]).unwrap();
        assert!(
            obstacle.sentence.contains("does not follow the queue of report"),
            "{}",
            obstacle.sentence
        );
    }

    #[test]
    fn people_are_told_who_a_rotation_waits_for() {
        assert_eq!(sentence(&[]), None);
        let who = |name: &str| (LockKey::new("shop", "report"), format!("pod {name}"));
        let all: Vec<_> = ["a", "b", "c", "d", "e"].map(who).into();
        let said = sentence(&all[..1]).unwrap();
        assert!(said.contains("waits: pod a at report does not know"), "{said}");
        let said = sentence(&all).unwrap();
        assert!(said.contains("pod c at report and 2 more does not"), "{said}");
    }
}
