//! The identity of a namespace: made, completed, and rotated when somebody asks and nobody is left behind.
//!
//! A pod shows the servers its identity and the one before, and opens its contender to both. After a
//! second rotation it would share none with pods that have slept through the first one: those could neither
//! read its contender nor leave the queue. So that rotation waits until every contender is open to
//! the identity in use. Keepers see to that by themselves, when their kubelet has written the Secret into their
//! volume; those that cannot have to be restarted.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use lockkeeper_lock::zookeeper::Onlooker;
use tokio::time::Instant;
use zookeeper_client::Error as ZkError;

use crate::context::Context;
use crate::ensemble::Ensemble;
use crate::error::Error;
use crate::identity::{Identity, is_user_of};
use crate::layout::LockKey;
use crate::others::Standing;
use crate::tree::TreeError;

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

/// Obstacles that were found last, by namespace. Who holds it may make and rotate identities: one at a time,
/// however many locks of a namespace ask for it.
pub type Making = tokio::sync::Mutex<HashMap<String, (Instant, Obstacle)>>;

/// Sees to it that the namespace has an identity, with all that pods need. Its locks are open to a new one
/// before anybody can read it from the Secret. `is_same` says that it is the namespace that had the Secret
/// which this process has seen. Says why a rotation that somebody asks for has to wait.
///
/// # Errors
/// Those of the ensemble and of the API server; and when this replica does not lead.
pub async fn ensure_identity(
    ctx: &Context,
    connection: &Onlooker,
    namespace: &str,
    is_same: bool,
) -> Result<Option<Obstacle>, Error> {
    if ctx.secrets.wanted(namespace, true, is_same).is_none() {
        return Ok(None);
    }
    let mut making = ctx.making.lock().await;
    let known = making.remove(namespace).filter(|(at, _)| at.elapsed() < LOOK);
    let obstacle = match (ctx.secrets.of(namespace), known) {
        (Some(Ok(secret)), None) if secret.is_rotation_asked => {
            let found = obstacle(ctx, connection, namespace, &secret.all[0]).await?;
            found.map(|found| (Instant::now(), found))
        }
        (Some(Ok(secret)), known) if secret.is_rotation_asked => known,
        _ => None,
    };
    if let Some(found) = &obstacle {
        making.insert(namespace.to_owned(), found.clone());
    }
    let obstacle = obstacle.map(|(_, obstacle)| obstacle);
    // Another lock of the namespace may have been first.
    let Some(wanted) = ctx.secrets.wanted(namespace, obstacle.is_none(), is_same) else {
        return Ok(obstacle);
    };
    let would = ctx
        .secrets
        .would_be_written(&ctx.client, namespace, &wanted)
        .await;
    would.map_err(Error::writing("the namespace's Secret"))?;
    ctx.leadership.check()?;
    for key in ctx.own.mirror.locks_of(namespace) {
        ctx.own.tree.ensure_lock(connection, &key, &wanted.all).await?;
    }
    ctx.leadership.check()?;
    ctx.metrics.wrote("secret");
    let written = ctx.secrets.write_secret(&ctx.client, namespace, &wanted).await;
    written.map_err(Error::writing("the namespace's Secret"))?;
    Ok(obstacle)
}

/// Who would be left behind by a rotation.
async fn obstacle(
    ctx: &Context,
    connection: &Onlooker,
    namespace: &str,
    current: &Identity,
) -> Result<Option<Obstacle>, Error> {
    let mut behind = left_behind(&ctx.own, connection, namespace, current).await?;
    for (source, standing) in ctx.others.with_identity_of(namespace) {
        match standing {
            Standing::Up {
                ensemble, connection, ..
            } => behind.extend(left_behind(&ensemble, &connection, namespace, current).await?),
            Standing::Unsure | Standing::Out(_) | Standing::Orphaned(_) => {
                let sentence = format!(
                    "the rotation of the namespace's identity waits: the operator cannot see who uses it in the \
                     ensemble {}",
                    source.connect
                );
                let locks = ctx.others.users_of(&source);
                return Ok(Some(Obstacle { sentence, locks }));
            }
        }
    }
    let locks = behind.iter().map(|(key, _)| key.clone()).collect();
    Ok(sentence(&behind).map(|sentence| Obstacle { sentence, locks }))
}

fn sentence(behind: &[(LockKey, String)]) -> Option<String> {
    let named: Vec<_> = behind
        .iter()
        .take(NAMED)
        .map(|(key, who)| format!("{who} at {}", key.name))
        .collect();
    let more = match behind.len().checked_sub(NAMED) {
        None | Some(0) => String::new(),
        Some(more) => format!(" and {more} more"),
    };
    (!behind.is_empty()).then(|| {
        format!(
            "the rotation of the namespace's identity waits: {}{more} does not know the identity in use yet; the \
             kubelet brings it within some minutes, or else restart the pod",
            named.join(", ")
        )
    })
}

/// Contenders of the namespace's pods that are not open to the identity in use.
async fn left_behind(
    ensemble: &Ensemble,
    connection: &Onlooker,
    namespace: &str,
    current: &Identity,
) -> Result<Vec<(LockKey, String)>, Error> {
    let mut behind = Vec::new();
    for key in ensemble.mirror.locks_of(namespace) {
        for contender in ensemble.mirror.queue(&key).contenders() {
            let path = format!("{}/{}", ensemble.tree.layout().lock(&key), contender.name);
            let users: Vec<_> = match connection.get_acl(&path).await {
                // The names are shown to whoever may read the node; the hashes are not.
                Ok((acls, _)) => acls
                    .iter()
                    .filter_map(|acl| Some(acl.id().split_once(':')?.0.to_owned()))
                    .collect(),
                // Gone, or not of our pods.
                Err(ZkError::NoNode | ZkError::NoAuth) => continue,
                Err(error) => return Err(TreeError::Failed { path, error }.into()),
            };
            if is_behind(&users, namespace, current) {
                let pod = contender.data.pod.as_ref();
                let who = pod.map_or_else(|| contender.name.clone(), |pod| format!("pod {}", pod.name));
                behind.push((key.clone(), who));
            }
        }
    }
    Ok(behind)
}

/// Whether these users, of an ACL, are those of a pod of the namespace that does not know its identity.
fn is_behind(users: &[String], namespace: &str, current: &Identity) -> bool {
    users.iter().any(|user| is_user_of(user, namespace)) && !users.iter().any(|user| user == current.user())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_left_behind_when_its_contender_is_open_to_older_identities_only() {
        let [old, current, foreign] = ["shop", "shop", "bank"].map(Identity::generate);
        let is_behind = |identities: &[&Identity]| {
            let users: Vec<_> = identities.iter().map(|one| one.user().to_owned()).collect();
            is_behind(&users, "shop", &current)
        };
        assert!(is_behind(&[&old]));
        assert!(!is_behind(&[&old, &current]));
        assert!(!is_behind(&[&foreign]), "not one of ours to wait for");
        assert!(!is_behind(&[]));
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
