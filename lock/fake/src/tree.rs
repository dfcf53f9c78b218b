//! The nodes, and the changes of a write.

use std::collections::BTreeMap;

use lockkeeper_lock::FencingToken;
use lockkeeper_lock::ensemble::{Children, EnsembleError, EnsembleResult, MultiError, Node, Op};

#[derive(Clone)]
struct Znode {
    data: Vec<u8>,
    czxid: i64,
    version: i32,
    owner: i64,
    /// How many children were ever created: the number in the next sequential name.
    created: u32,
}

/// A change by a transaction; the same on every server.
#[derive(Clone)]
pub(crate) enum Change {
    Create { path: String, data: Vec<u8>, owner: i64 },
    SetData { path: String, data: Vec<u8> },
    Delete { path: String },
}

impl Change {
    pub(crate) fn path(&self) -> &str {
        match self {
            Self::Create { path, .. } | Self::SetData { path, .. } | Self::Delete { path } => path,
        }
    }
}

/// A request that the leader puts in order.
#[derive(Clone)]
pub(crate) enum Write {
    CreateContender {
        prefix: String,
        data: Vec<u8>,
        version: i32,
    },
    MakePath {
        path: String,
        data: Vec<u8>,
    },
    SetData {
        path: String,
        data: Vec<u8>,
        version: Option<i32>,
    },
    Multi(Vec<Op>),
}

/// The result of a write, once its transaction has its number.
pub(crate) enum Done {
    Nothing,
    /// The path of a contender.
    Created(String),
}

#[derive(Clone, Default)]
pub(crate) struct Tree {
    nodes: BTreeMap<String, Znode>,
}

pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

impl Tree {
    pub(crate) fn apply(&mut self, zxid: i64, change: &Change) {
        match change {
            Change::Create { path, data, owner } => {
                if let Some(parent) = self.nodes.get_mut(parent(path)) {
                    parent.created += 1;
                }
                let node = Znode {
                    data: data.clone(),
                    czxid: zxid,
                    version: 0,
                    owner: *owner,
                    created: 0,
                };
                self.nodes.insert(path.clone(), node);
            }
            Change::SetData { path, data } => {
                if let Some(node) = self.nodes.get_mut(path) {
                    node.data.clone_from(data);
                    node.version += 1;
                }
            }
            Change::Delete { path } => {
                self.nodes.remove(path);
            }
        }
    }

    pub(crate) fn node(&self, path: &str) -> EnsembleResult<Node> {
        let node = self.nodes.get(path).ok_or(EnsembleError::NoNode)?;
        Ok(Node {
            data: node.data.clone(),
            czxid: FencingToken(node.czxid),
            version: node.version,
            owner: node.owner,
        })
    }

    pub(crate) fn children(&self, path: &str) -> EnsembleResult<Vec<String>> {
        if !self.nodes.contains_key(path) {
            return Err(EnsembleError::NoNode);
        }
        let prefix = format!("{path}/");
        let names = self
            .nodes
            .range(prefix.clone()..)
            .map_while(|(child, _)| child.strip_prefix(&prefix))
            .filter(|name| !name.contains('/'))
            .map(str::to_owned);
        Ok(names.collect())
    }

    /// The children with their parent, as a server lists them.
    pub(crate) fn listing(&self, path: &str) -> EnsembleResult<Children> {
        let node = self.node(path)?;
        Ok(Children {
            names: self.children(path)?,
            parent: node.incarnation(),
            owner: node.owner,
        })
    }

    /// The ephemeral nodes of a session.
    pub(crate) fn owned(&self, session: i64) -> Vec<String> {
        let owned = self.nodes.iter().filter(|(_, node)| node.owner == session);
        owned.map(|(path, _)| path.clone()).collect()
    }

    /// What `write` would change, all or nothing.
    pub(crate) fn plan(&self, write: &Write, session: i64) -> Result<(Vec<Change>, Done), MultiError> {
        let whole = |error| MultiError { index: 0, error };
        match write {
            Write::CreateContender {
                prefix,
                data,
                version,
            } => {
                self.version(parent(prefix), Some(*version)).map_err(whole)?;
                let parent = self
                    .nodes
                    .get(parent(prefix))
                    .ok_or(whole(EnsembleError::NoNode))?;
                let path = format!("{prefix}{:010}", parent.created);
                if self.nodes.contains_key(&path) {
                    return Err(whole(EnsembleError::NodeExists));
                }
                let create = Change::Create {
                    path: path.clone(),
                    data: data.clone(),
                    owner: session,
                };
                Ok((vec![create], Done::Created(path)))
            }
            Write::MakePath { path, data } => Ok((self.missing(path, data), Done::Nothing)),
            Write::SetData { path, data, version } => {
                self.version(path, *version).map_err(whole)?;
                let set = Change::SetData {
                    path: path.clone(),
                    data: data.clone(),
                };
                Ok((vec![set], Done::Nothing))
            }
            Write::Multi(ops) => Ok((self.multi(ops)?, Done::Nothing)),
        }
    }

    fn missing(&self, path: &str, data: &[u8]) -> Vec<Change> {
        let ends = path.match_indices('/').map(|(index, _)| index).skip(1);
        ends.chain([path.len()])
            .map(|end| &path[..end])
            .filter(|ancestor| !self.nodes.contains_key(*ancestor))
            .map(|ancestor| Change::Create {
                path: ancestor.to_owned(),
                data: if ancestor == path {
                    data.to_vec()
                } else {
                    Vec::new()
                },
                owner: 0,
            })
            .collect()
    }

    fn version(&self, path: &str, version: Option<i32>) -> EnsembleResult<()> {
        let node = self.nodes.get(path).ok_or(EnsembleError::NoNode)?;
        match version {
            Some(version) if version != node.version => Err(EnsembleError::BadVersion),
            _ => Ok(()),
        }
    }

    fn multi(&self, ops: &[Op]) -> Result<Vec<Change>, MultiError> {
        // Each operation sees the effects of those before it.
        let mut after = (ops.len() > 1).then(|| self.clone());
        let mut changes = Vec::new();
        for (index, op) in ops.iter().enumerate() {
            let tree = after.as_ref().unwrap_or(self);
            let change = match op {
                Op::Check { path } => tree.version(path, None).map(|()| None),
                Op::SetData { path, data, version } => tree.version(path, *version).map(|()| {
                    Some(Change::SetData {
                        path: path.clone(),
                        data: data.clone(),
                    })
                }),
                Op::Create { path, data } => tree.creatable(path).map(|()| {
                    Some(Change::Create {
                        path: path.clone(),
                        data: data.clone(),
                        owner: 0,
                    })
                }),
                Op::Delete { path, version } => tree
                    .version(path, *version)
                    .and_then(|()| tree.deletable(path))
                    .map(|()| Some(Change::Delete { path: path.clone() })),
            };
            if let Some(change) = change.map_err(|error| MultiError { index, error })? {
                if let Some(after) = &mut after {
                    after.apply(0, &change);
                }
                changes.push(change);
            }
        }
        Ok(changes)
    }

    fn creatable(&self, path: &str) -> EnsembleResult<()> {
        if !self.nodes.contains_key(parent(path)) {
            return Err(EnsembleError::NoNode);
        }
        match self.nodes.contains_key(path) {
            true => Err(EnsembleError::NodeExists),
            false => Ok(()),
        }
    }

    fn deletable(&self, path: &str) -> EnsembleResult<()> {
        match self.children(path)?.is_empty() {
            true => Ok(()),
            false => Err(EnsembleError::NotEmpty),
        }
    }
}
