//! Identities of ZooKeeper's `digest` scheme. They decide which clients may use which locks.

use std::fmt;

use aws_lc_rs::{digest, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use lockkeeper_daemon::credentials::user_and_password;
use zookeeper_client::AuthId;

pub mod namespace_secret;
pub(crate) mod secrets;

/// Bytes of a generated password: 192 bits, so that it cannot be found from its SHA-1.
const PASSWORD_BYTES: usize = 24;

/// Bytes that tell the identities of a namespace apart in their names: a client that may read a node sees the
/// names in its ACL, and nothing of the passwords.
const NAME_BYTES: usize = 6;

/// Most identities in one Secret. A rotation leaves two; a user who moves to another identity by hand may need the
/// new one, the one in use and the one before. Each takes a right on every node, and pods show all of them.
pub(crate) const IDENTITIES: usize = 4;

/// Longest line with an identity, in bytes. Those that the operator makes have some 60, and a namespace's name 63 at
/// most.
pub(crate) const LONGEST_IDENTITY: usize = 512;

/// Name and password. Its `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Identity {
    user: String,
    password: String,
}

/// Text that is no identity. The message never shows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must hold one line of {LONGEST_IDENTITY} bytes at most, digest:USER:PASSWORD or USER:PASSWORD")]
pub struct InvalidIdentity;

/// Text that is no list of identities. The message never shows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must hold one to {IDENTITIES} lines, each of {LONGEST_IDENTITY} bytes at most and none of them twice: \
     digest:USER:PASSWORD or USER:PASSWORD"
)]
pub struct InvalidIdentities;

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
    /// When a line is something else, or they are more than [`IDENTITIES`], or one is there twice.
    pub fn parse_lines(text: &str) -> Result<Vec<Self>, InvalidIdentities> {
        let text = text.trim_end_matches(['\r', '\n']);
        // An empty text is not a list of identities.
        let lines = text.split('\n').take(IDENTITIES + 1);
        let mut all = Vec::new();
        for line in lines {
            let identity = Self::parse(line).map_err(|_| InvalidIdentities)?;
            if all.len() == IDENTITIES || all.contains(&identity) {
                return Err(InvalidIdentities);
            }
            all.push(identity);
        }
        Ok(all)
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
        if line.len() > LONGEST_IDENTITY {
            return Err(InvalidIdentity);
        }
        let (user, password) = user_and_password(line).ok_or(InvalidIdentity)?;
        if line.contains(['\r', '\n']) {
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
    pub(crate) fn is_of(&self, namespace: &str) -> bool {
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
pub(crate) fn is_user_of(name: &str, namespace: &str) -> bool {
    let rest = name.strip_prefix(&user(namespace));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn user(namespace: &str) -> String {
    format!("ns-{namespace}")
}

/// Random bytes of the operating system, in base64 for paths.
pub(crate) fn random<const BYTES: usize>() -> String {
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
            "the user is shown without the password"
        );
        let lines = format!("{}\n{}\n", identity.to_line(), other.to_line());
        assert_eq!(Identity::parse_lines(&lines), Ok(vec![identity, other]));
    }

    #[test]
    fn a_secret_gives_few_identities_of_few_bytes_and_none_of_them_twice() {
        let lines = |count: usize| {
            let lines: Vec<_> = (0..count).map(|at| format!("ns-team:x{at}")).collect();
            Identity::parse_lines(&lines.join("\n"))
        };
        assert_eq!(lines(IDENTITIES).unwrap().len(), IDENTITIES);
        assert_eq!(lines(IDENTITIES + 1), Err(InvalidIdentities));
        assert_eq!(lines(30_000), Err(InvalidIdentities));
        assert_eq!(Identity::parse_lines("u:a\nv:b\nu:a"), Err(InvalidIdentities));
        let long = |length: usize| Identity::parse_lines(&format!("u:{}", "x".repeat(length - 2)));
        assert!(long(LONGEST_IDENTITY).is_ok());
        assert_eq!(long(LONGEST_IDENTITY + 1), Err(InvalidIdentities));
    }

    #[test]
    fn what_is_no_identity_is_refused_and_no_password_is_shown() {
        for text in ["", "digest:", "digest:secret", ":secret", "u:", "u:a\nv:b"] {
            assert_eq!(Identity::parse(text), Err(InvalidIdentity), "{text}");
        }
        for text in ["", "\n", "u:a\nsecret", "u:a\n\nv:b"] {
            assert_eq!(Identity::parse_lines(text), Err(InvalidIdentities), "{text}");
        }
        let shown = format!("{:?}", Identity::parse("u:secret").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
