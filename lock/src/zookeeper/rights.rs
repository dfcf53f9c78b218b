//! ACLs of the nodes that we create.

use std::str::FromStr;

use zookeeper_client::{Acl, Acls, AuthId, Permission};

use super::credentials::Credentials;

/// Length of an SHA-1 in Base64: ZooKeeper stores this hash for a digest identity
/// (`DigestAuthenticationProvider.generateDigest`).
const HASH_CHARACTERS: usize = 28;

/// An identity that may read contenders: `digest:USER:HASH`, as ZooKeeper's ACLs name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reader {
    /// `USER:HASH`.
    id: String,
}

/// Not an identity. The message does not show the text, which may be a password by mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be digest:USER:HASH, where HASH is the Base64 of the SHA-1 of USER:PASSWORD (28 characters), as \
     getAcl in zkCli.sh shows it"
)]
pub struct InvalidReader;

/// The ACLs of the two kinds of nodes that we create.
pub(super) struct Rights {
    contenders: Vec<Acl>,
    others: Vec<Acl>,
}

/// Adds those of `others` that are missing.
pub(super) fn join(identities: &mut Vec<String>, others: Vec<String>) {
    for other in others {
        if !identities.contains(&other) {
            identities.push(other);
        }
    }
}

// === impl Reader ===

impl FromStr for Reader {
    type Err = InvalidReader;

    fn from_str(text: &str) -> Result<Self, InvalidReader> {
        let id = text.strip_prefix("digest:").ok_or(InvalidReader)?;
        let (user, hash) = id.split_once(':').ok_or(InvalidReader)?;
        let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/');
        let is_hash = hash.len() == HASH_CHARACTERS
            && hash
                .strip_suffix('=')
                .is_some_and(|rest| rest.chars().all(is_base64));
        if user.is_empty() || !is_hash {
            return Err(InvalidReader);
        }
        Ok(Self { id: id.to_owned() })
    }
}

// === impl Rights ===

impl Rights {
    pub(super) fn new(credentials: &Credentials, readers: &[Reader]) -> Self {
        let everything = match credentials {
            Credentials::Anonymous => AuthId::anyone(),
            // "auth": the client that created the node, with all its identities. Other clients have no rights at all.
            Credentials::Digest(_) | Credentials::Digests(_) => AuthId::authed(),
        };
        let others = vec![Acl::new(Permission::ALL, everything)];
        let readers = readers
            .iter()
            .map(|reader| Acl::new(Permission::READ, AuthId::new("digest", &reader.id)));
        Self {
            contenders: others.iter().cloned().chain(readers).collect(),
            others,
        }
    }

    /// ACL of contenders.
    pub(super) fn of_contenders(&self) -> Acls<'_> {
        Acls::new(&self.contenders)
    }

    /// The same, for a contender that exists.
    pub(super) fn list_of_contenders(&self) -> &[Acl] {
        &self.contenders
    }

    /// ACL of lock root and control node.
    pub(super) fn of_others(&self) -> Acls<'_> {
        Acls::new(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_the_id_of_an_acl_is_refused_without_being_shown() {
        // `echo -n super:admin | openssl dgst -sha1 -binary | base64`
        let right = "digest:super:xQJmxLMiHGwaqBvst5y6rkB6HQs=";
        assert!(right.parse::<Reader>().is_ok());
        for wrong in [
            "",
            "super:xQJmxLMiHGwaqBvst5y6rkB6HQs=",
            "world:anyone",
            "digest:super:password",
            "digest::xQJmxLMiHGwaqBvst5y6rkB6HQs=",
            "digest:super:xQJmxLMiHGwaqBvst5y6rkB6HQs=x",
            "digest:super:xQJm-LMiHGwaqBvst5y6rkB6HQs=",
        ] {
            let error = wrong.parse::<Reader>().unwrap_err().to_string();
            assert!(error.contains("digest:USER:HASH"), "{error}");
            assert!(!error.contains("password"), "{error}");
        }
    }
}
