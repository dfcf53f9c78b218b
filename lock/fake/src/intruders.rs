//! Changes to the nodes and sessions of a [`World`] by other clients: an administrator, a foreign program.

use crate::happened::Happened;
use crate::tree::Change;
use crate::world::World;

impl World {
    /// Ends a session by force.
    pub fn expire(&self, session: i64) {
        self.shared
            .state()
            .end_session(session, Happened::Expired { session });
    }

    /// Another client creates a persistent node.
    pub fn create(&self, path: &str, data: &[u8]) {
        self.create_owned(path, data, 0);
    }

    /// Another client creates a node, which is owned by a session of its own.
    pub fn create_owned(&self, path: &str, data: &[u8], owner: i64) {
        self.change(Change::Create {
            path: path.to_owned(),
            data: data.to_vec(),
            owner,
        });
    }

    /// Another client changes a node's data.
    pub fn set_data(&self, path: &str, data: &[u8]) {
        self.change(Change::SetData {
            path: path.to_owned(),
            data: data.to_vec(),
        });
    }

    /// Another client deletes one node, without its children.
    pub fn delete(&self, path: &str) {
        self.change(Change::Delete {
            path: path.to_owned(),
        });
    }

    /// Takes all rights on nodes whose path begins with `prefix` from all clients.
    pub fn forbid(&self, prefix: &str) {
        self.shared.state().forbidden.insert(prefix.to_owned());
    }

    /// Takes the right to write to nodes whose path begins with `prefix` from all clients.
    pub fn protect(&self, prefix: &str) {
        self.shared.state().protected.insert(prefix.to_owned());
    }

    /// Undoes [`World::forbid`].
    pub fn allow(&self, prefix: &str) {
        self.shared.state().forbidden.remove(prefix);
    }

    fn change(&self, change: Change) {
        self.shared.state().commit(vec![change], None, None, None);
    }
}
