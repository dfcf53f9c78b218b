//! The identity of a namespace: made, completed, and rotated when somebody asks and nobody is left behind.
//!
//! A pod shows the servers its identity and the one before, and opens its contender to both. After a
//! second rotation it would share none with pods that have slept through the first one: those could neither
//! read its contender nor leave the queue. So that rotation waits until every contender is open to
//! the identity in use. Keepers see to that by themselves, when their kubelet has written the Secret into their
//! volume; those that cannot have to be restarted.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::context::Context;
use crate::error::Error;
use crate::identity::Identity;
use crate::layout::LockKey;
use crate::mirror::View;
use crate::names;
use crate::others::Standing;
use crate::picture::Queue;
use crate::way::Way;

/// Contenders that are named; more are counted.
const NAMED: usize = 3;

/// How long an obstacle is believed: the locks of a namespace are all looked at when it is to be rotated,
/// and one look goes through all their queues.
const LOOK: Duration = Duration::from_secs(10);

/// Why a rotation that somebody asks for has to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// One sentence.
    pub sentence: String,
    /// The locks that have to do with it.
    pub locks: HashSet<LockKey>,
}

/// Most contenders of a namespace that are looked at before a rotation: some seconds of questions over the connection
/// on which all locks are followed.
const CONTENDERS: usize = 20_000;

/// The obstacle that was found last in a namespace. Who holds it may make and rotate its identities.
type Known = Arc<tokio::sync::Mutex<Option<(Instant, Obstacle)>>>;

/// Who makes and rotates identities: in each namespace one at a time, however many of its locks ask for it, and no
/// namespace waits for another one.
#[derive(Debug, Default)]
pub struct Making(Mutex<HashMap<String, Known>>);

/// What came of a look at the identity of a namespace.
#[derive(Debug)]
pub enum Ensured {
    /// It is there. The obstacle is why a rotation waits that somebody asks for.
    Done(Option<Obstacle>),
    /// Another lock of the namespace is at it: look again.
    Busy,
}

impl Making {
    fn of(&self, namespace: &str) -> Known {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.get(namespace) {
            return Arc::clone(known);
        }
        // Those that say nothing any more.
        all.retain(|_, known| {
            let is_old = |known: &Option<(Instant, Obstacle)>| {
                known.as_ref().is_none_or(|(at, _)| at.elapsed() >= LOOK)
            };
            !known.try_lock().is_ok_and(|known| is_old(&known)) || Arc::strong_count(known) > 1
        });
        Arc::clone(all.entry(namespace.to_owned()).or_default())
    }
}

/// Sees to it that the namespace has an identity, with all that pods need. Its locks are open to a new one
/// before anybody can read it from the Secret. `is_same` says that it is the namespace that had the Secret
/// which this process has seen. Says why a rotation that somebody asks for has to wait. Waits for no other lock that is
/// at the same.
///
/// # Errors
/// Those of the ensemble and of the API server; and when this replica does not lead.
pub async fn ensure_identity(
    ctx: &Context,
    own: &Way,
    namespace: &str,
    is_same: bool,
) -> Result<Ensured, Error> {
    if ctx.secrets.wanted(namespace, true, is_same).is_none() {
        return Ok(Ensured::Done(None));
    }
    let making = ctx.making.of(namespace);
    let Ok(mut making) = making.try_lock() else {
        return Ok(Ensured::Busy);
    };
    let known = making.take().filter(|(at, _)| at.elapsed() < LOOK);
    let obstacle = match (ctx.secrets.of(namespace), known) {
        (Some(Ok(secret)), None) if secret.is_rotation_asked => {
            let found = obstacle(ctx, own, namespace, &secret.all[0]).await?;
            found.map(|found| (Instant::now(), found))
        }
        (Some(Ok(secret)), known) if secret.is_rotation_asked => known,
        _ => None,
    };
    if let Some(found) = &obstacle {
        *making = Some(found.clone());
    }
    let obstacle = obstacle.map(|(_, obstacle)| obstacle);
    // Another lock of the namespace may have been first.
    let Some(wanted) = ctx.secrets.wanted(namespace, obstacle.is_none(), is_same) else {
        return Ok(Ensured::Done(obstacle));
    };
    let would = ctx
        .secrets
        .would_be_written(&ctx.client, namespace, &wanted)
        .await;
    would.map_err(Error::writing("the namespace's Secret"))?;
    ctx.leadership.check()?;
    for key in ctx.own.view.locks_of(namespace) {
        own.ensure_lock(&key, &wanted.all).await?;
    }
    ctx.leadership.check()?;
    ctx.metrics.wrote("secret");
    let written = ctx.secrets.write_secret(&ctx.client, namespace, &wanted).await;
    written.map_err(Error::writing("the namespace's Secret"))?;
    Ok(Ensured::Done(obstacle))
}

/// Who would be left behind by a rotation.
async fn obstacle(
    ctx: &Context,
    own: &Way,
    namespace: &str,
    current: &Identity,
) -> Result<Option<Obstacle>, Error> {
    if let Some(unseen) = unseen(&ctx.own.view, namespace) {
        return Ok(Some(unseen));
    }
    let mut behind = own.left_behind(namespace, current.user()).await?;
    for (source, standing) in ctx.others.with_identity_of(namespace) {
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
                "the rotation of the namespace's identity waits: the operator cannot see who uses it in the ensemble {}",
                source.connect
            );
            let locks = ctx.others.users_of(&source);
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
            names::first(named, NAMED)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::{Contender, Excess, Picture};
    use lockkeeper_lock::FencingToken;

    #[test]
    fn a_namespace_whose_identity_is_being_made_keeps_no_other_one_waiting() {
        let making = Making::default();
        let one = making.of("a");
        let held = one.try_lock().unwrap();
        assert!(making.of("a").try_lock().is_err(), "one at a time");
        assert!(making.of("b").try_lock().is_ok());
        drop(held);
        assert!(making.of("a").try_lock().is_ok());
    }

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
