//! Identities that arrive while a connection is in use.

use std::sync::Weak;

use tokio::sync::watch;

use super::inner::{Inner, lock};

/// Follows the identities while the connection exists. Best effort: if the connection is lost, the next one starts to
/// follow them again.
pub(super) async fn follow(
    inner: Weak<Inner>,
    mut followed: watch::Receiver<Vec<String>>,
    mut is_more: bool,
) {
    loop {
        let Some(inner) = inner.upgrade() else { return };
        let known = lock(&inner.identities).len();
        let wanted = followed.borrow_and_update().clone();
        if !inner.show(wanted).await {
            return;
        }
        if is_more || lock(&inner.identities).len() > known {
            inner.open_contender().await;
            is_more = false;
        }
        drop(inner);
        if followed.changed().await.is_err() {
            return;
        }
    }
}

impl Inner {
    /// Adds the identities that are new to the server. False if the server refuses them.
    async fn show(&self, identities: Vec<String>) -> bool {
        for identity in identities {
            if lock(&self.identities).contains(&identity) {
                continue;
            }
            if self.client.auth("digest", identity.as_bytes()).await.is_err() {
                return false;
            }
            lock(&self.identities).push(identity);
        }
        true
    }

    /// Gives all our identities rights on the contender.
    pub(super) async fn open_contender(&self) {
        let contender = lock(&self.contender).clone();
        let Some(contender) = contender else { return };
        let rights = self.acls.list_of_contenders();
        if let Err(error) = self.client.set_acl(&contender, rights, None).await {
            tracing::debug!(%error, "No rights on the contender for a new identity");
        }
    }
}
