//! Identities of ZooKeeper's `digest` scheme: who may touch which locks.

use std::fmt;

use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use zookeeper_client::AuthId;

/// Bytes of a generated password: 192 bits, so that nobody finds it from its SHA-1.
const PASSWORD_BYTES: usize = 24;

/// Bytes that tell the identities of a namespace apart in their names: whoever may read a node sees the
/// names in its ACL, and nothing of the passwords.
const NAME_BYTES: usize = 6;

/// Name and password. Its `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    user: String,
    password: String,
}

/// Text that is no identity. The message never shows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must hold one line, digest:USER:PASSWORD or USER:PASSWORD")]
pub struct InvalidIdentity;

// === impl Identity ===

impl Identity {
    /// A new identity of a namespace: user `ns-<namespace>.<random>` and a random password.
    pub fn generate(namespace: &str) -> Self {
        Self {
            user: format!("{}.{}", user(namespace), random::<NAME_BYTES>()),
            password: random::<PASSWORD_BYTES>(),
        }
    }

    /// Reads one identity or more, each in a line of its own.
    ///
    /// # Errors
    /// When a line is something else.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, InvalidIdentity> {
        let text = text.trim_end_matches(['\r', '\n']);
        // Nothing is no identity either.
        text.split('\n').map(Self::parse).collect()
    }

    /// The name in an ACL, before the colon.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Reads `digest:USER:PASSWORD` or `USER:PASSWORD`; line ends at the end do not count.
    ///
    /// # Errors
    /// When it is something else.
    pub fn parse(text: &str) -> Result<Self, InvalidIdentity> {
        let line = text.trim_end_matches(['\r', '\n']);
        let (user, password) = line
            .strip_prefix("digest:")
            .unwrap_or(line)
            .split_once(':')
            .ok_or(InvalidIdentity)?;
        if user.is_empty() || password.is_empty() || line.contains(['\r', '\n']) {
            return Err(InvalidIdentity);
        }
        Ok(Self {
            user: user.to_owned(),
            password: password.to_owned(),
        })
    }

    /// As in the Secret of a namespace and in the sidecar's `--auth-file`.
    pub fn to_line(&self) -> String {
        format!("digest:{}:{}", self.user, self.password)
    }

    /// `USER:PASSWORD`, what ZooKeeper's `addauth digest` takes.
    pub fn digest_auth(&self) -> String {
        format!("{}:{}", self.user, self.password)
    }

    /// Whether it is one of this namespace.
    pub fn is_of(&self, namespace: &str) -> bool {
        is_user_of(&self.user, namespace)
    }

    /// The identity in an ACL: `USER:base64(SHA-1(USER:PASSWORD))`
    /// (`DigestAuthenticationProvider.generateDigest`).
    pub fn acl_id(&self) -> String {
        let hash = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, self.digest_auth().as_bytes());
        format!("{}:{}", self.user, STANDARD.encode(hash))
    }

    /// The same for `zookeeper-client`.
    pub fn auth_id(&self) -> AuthId {
        AuthId::new("digest", &self.acl_id())
    }
}

/// Whether a name in an ACL is one of this namespace. No namespace has a dot in its name.
pub fn is_user_of(name: &str, namespace: &str) -> bool {
    let rest = name.strip_prefix(&user(namespace));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn user(namespace: &str) -> String {
    format!("ns-{namespace}")
}

fn random<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    rand::fill(&mut bytes).expect("the operating system gives random bytes");
    URL_SAFE_NO_PAD.encode(bytes)
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_zookeeper_makes() {
        // ZooKeeper's manual, "Authentication options": super:test gives D/InIHSb7yEEbrWz8b9l71RjZJU=.
        let identity = Identity::parse("super:test").unwrap();
        assert_eq!(identity.acl_id(), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
    }

    #[test]
    fn a_generated_identity_is_read_back_and_is_never_the_same_twice() {
        let identity = Identity::generate("shop");
        assert_eq!(Identity::parse(&identity.to_line()).as_ref(), Ok(&identity));
        assert!(identity.is_of("shop") && !identity.is_of("sho"));
        assert!(!Identity::generate("shop-2").is_of("shop"));
        let other = Identity::generate("shop");
        assert_ne!(
            identity.user(),
            other.user(),
            "who is who is seen without the password"
        );
        let lines = format!("{}\n{}\n", identity.to_line(), other.to_line());
        assert_eq!(Identity::parse_lines(&lines), Ok(vec![identity, other]));
    }

    #[test]
    fn what_is_no_identity_is_refused_and_no_password_is_shown() {
        for text in ["", "digest:", "digest:secret", ":secret", "u:", "u:a\nv:b"] {
            assert_eq!(Identity::parse(text), Err(InvalidIdentity), "{text}");
        }
        for text in ["", "\n", "u:a\nsecret", "u:a\n\nv:b"] {
            assert_eq!(Identity::parse_lines(text), Err(InvalidIdentity), "{text}");
        }
        let shown = format!("{:?}", Identity::parse("u:secret").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
