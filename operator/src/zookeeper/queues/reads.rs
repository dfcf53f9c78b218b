//! The questions to a server about one place. The pods of a namespace can create anything below a lock root: so the
//! operator asks for its size before it reads it.

use std::sync::Arc;

use lockkeeper_lock::LONGEST_CONTENDER_DATA;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::zookeeper::Onlooker;
use tokio::sync::Semaphore;
use zookeeper_client as zk;

use crate::zookeeper::children::{CHILDREN, LONGEST_LIST, LONGEST_NAME, PATIENCE_FOR_LIST, cut};
use crate::zookeeper::paths::Place;
use crate::zookeeper::queues::picture::Excess;

/// Most children that are listed over the connection in use, which reads answers of any length: each name may
/// have nearly 1 MB (`jute.maxbuffer`). Locks with more are listed aside, with a bound on the answer.
const FEW: usize = 16;

/// Names under way at once over the connection in use: so many MB at most.
const NAMES: usize = 32;

/// Lists that are read aside at once: each takes a connection and a session of its own.
const ASIDE: usize = 2;

/// What the server says of a place.
pub(super) enum Answer {
    Children(Children),
    /// A contender; without its data where these are longer than ours ever are.
    Node(Vec<u8>, zk::Stat),
    /// Too much is below a lock root, as of this version of its children, if that is known.
    TooMuch(Excess, Option<i32>),
    /// A lock root that was given up, and of which nothing has changed.
    Unchanged,
    Gone,
    Forbidden,
    Failed(zk::Error),
}

/// Names of children. Long ones are cut, and nothing else of these children is read.
#[derive(Default)]
pub(super) struct Children {
    pub(crate) names: Vec<String>,
    pub(crate) long: Vec<String>,
}

/// What is known of a lock root that was given up before.
#[derive(Clone, Copy, Debug)]
pub(super) struct GivenUp {
    /// The version of its children then (`cversion`), if that is known.
    pub(crate) version: Option<i32>,
}

/// Asks a server, within bounds.
#[derive(Clone)]
pub(super) struct Reader {
    connection: Arc<Onlooker>,
    names: Arc<Semaphore>,
    aside: Arc<Semaphore>,
}

impl Reader {
    pub(super) fn new(connection: Arc<Onlooker>) -> Self {
        Self {
            connection,
            names: Arc::new(Semaphore::new(NAMES)),
            aside: Arc::new(Semaphore::new(ASIDE)),
        }
    }

    /// What is at a place. `before` is why a lock root was given up.
    pub(super) async fn read(&self, place: &Place, path: &str, before: Option<GivenUp>) -> Answer {
        let answer = match place {
            Place::Contender(..) => self.contender(path).await,
            Place::Lock(_) => self.lock(path, before).await,
            // Made by the operator.
            Place::Locks | Place::Namespace(_) => {
                let listed = self.connection.list_children(path).await;
                listed.map(|names| Answer::Children(Children::of(names)))
            }
        };
        answer.unwrap_or_else(|error| match error {
            zk::Error::NoNode => Answer::Gone,
            zk::Error::NoAuth => Answer::Forbidden,
            error => Answer::Failed(error),
        })
    }

    async fn contender(&self, path: &str) -> Result<Answer, zk::Error> {
        let Some(stat) = self.connection.check_stat(path).await? else {
            return Ok(Answer::Gone);
        };
        let length = usize::try_from(stat.data_length).unwrap_or(0);
        if length == 0 || length > LONGEST_CONTENDER_DATA {
            return Ok(Answer::Node(Vec::new(), stat));
        }
        let (mut data, stat) = self.connection.get_data(path).await?;
        if data.len() > LONGEST_CONTENDER_DATA {
            data = Vec::new();
        }
        Ok(Answer::Node(data, stat))
    }

    async fn lock(&self, path: &str, before: Option<GivenUp>) -> Result<Answer, zk::Error> {
        let Some(stat) = self.connection.check_stat(path).await? else {
            return Ok(Answer::Gone);
        };
        if before.is_some_and(|before| before.version == Some(stat.cversion)) {
            return Ok(Answer::Unchanged);
        }
        let count = usize::try_from(stat.num_children).unwrap_or(0);
        // Well below the limit: otherwise a queue would be given up and followed in turns.
        let most = if before.is_some() { CHILDREN / 2 } else { CHILDREN };
        if count > most {
            return Ok(Answer::TooMuch(Excess::Children(count), Some(stat.cversion)));
        }
        if count == 0 {
            // Contenders that come from now on are events.
            return Ok(Answer::Children(Children::default()));
        }
        if count <= FEW {
            let permits = u32::try_from(count).unwrap_or(1);
            // It is never closed.
            let _permits = self.names.acquire_many(permits).await;
            let names = self.connection.list_children(path).await?;
            return Ok(Answer::Children(Children::of(names)));
        }
        let _permit = self.aside.acquire().await;
        Ok(
            match self
                .connection
                .list_within(path, LONGEST_LIST, PATIENCE_FOR_LIST)
                .await
            {
                Ok(Some(names)) => Answer::Children(Children::of(names)),
                Ok(None) => Answer::TooMuch(Excess::Names, Some(stat.cversion)),
                Err(EnsembleError::NoNode) => Answer::Gone,
                Err(EnsembleError::NoAuth) => Answer::Forbidden,
                // This concerns only this lock: the others are still followed.
                Err(error) => Answer::TooMuch(Excess::Unlisted(error.to_string()), None),
            },
        )
    }
}

impl Children {
    fn of(names: Vec<String>) -> Self {
        let (names, long): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.len() <= LONGEST_NAME);
        let long = long.iter().map(|name| cut(name)).collect();
        Self { names, long }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_told_from_others_and_taken_for_no_contender() {
        let name = |end: &str| format!("{}-lock-000000000{end}", "é".repeat(300));
        let [one, other] = [name("1"), name("2")];
        assert!(cut(&one).len() < 128, "{}", cut(&one));
        assert!(lockkeeper_lock::is_contender(&one) && !lockkeeper_lock::is_contender(&cut(&one)));
        assert_ne!(cut(&one), cut(&other));
        let children = Children::of(vec![one.clone(), "a".into()]);
        assert_eq!(
            (children.names, children.long),
            (vec!["a".to_owned()], vec![cut(&one)])
        );
    }
}
