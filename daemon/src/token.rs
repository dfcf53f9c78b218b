//! The token in the path of the application's probes and hooks.
//!
//! Every pod that reaches the port can use it, and a hook acts on the application. A kubelet does not authenticate to
//! the keeper, but it requests the path in the pod's spec. So the path contains a secret that cannot be guessed.

use std::fmt;
use std::ops::RangeInclusive;

use subtle::ConstantTimeEq;

/// Characters of a token. 22 of 64 different ones have 132 bits, if they are drawn at random. With the most, the path
/// is still short compared with the 8 KiB of a request's head.
const LENGTH: RangeInclusive<usize> = 22..=128;

/// The secret in the path. Its `Debug` does not show it.
#[derive(Clone)]
pub struct AppToken(String);

/// A text that is not a token. The message never shows the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must have {} to {} characters, each of them a letter of A to Z in either case, a digit, - or _, drawn at random: \
     `head -c 24 /dev/urandom | base64 | tr +/ -_` makes one",
    LENGTH.start(),
    LENGTH.end()
)]
pub struct InvalidToken;

// === impl AppToken ===

impl AppToken {
    /// Reads a token. All its characters may stand in a path unescaped (RFC 3986, section 2.3).
    ///
    /// # Errors
    /// When it is too short to be unguessable, too long, or has another character.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if LENGTH.contains(&text.len()) && text.bytes().all(fits) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidToken)
        }
    }

    /// Whether `said` is this token. The time of the comparison does not depend on where the two differ.
    pub fn is(&self, said: &str) -> bool {
        self.0.as_bytes().ct_eq(said.as_bytes()).into()
    }

    /// For the path and the variable of a pod; must not appear anywhere else.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PartialEq for AppToken {
    fn eq(&self, other: &Self) -> bool {
        self.is(&other.0)
    }
}

impl Eq for AppToken {}

impl fmt::Debug for AppToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AppToken").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "Zm9vYmFyYmF6cXV4cXV1eA";

    #[test]
    fn a_token_that_could_be_guessed_or_has_to_be_escaped_in_a_path_is_refused_and_not_shown() {
        let short = &RIGHT[1..];
        let long = "a".repeat(129);
        let slash = format!("{RIGHT}/x");
        let percent = format!("{RIGHT}%2F");
        for wrong in ["", short, &long, &slash, &percent, "zwölfzwölfzwölfzwölf12"] {
            let problem = AppToken::parse(wrong).unwrap_err().to_string();
            assert!(problem.starts_with("must have 22 to 128 characters"), "{problem}");
            assert!(wrong.is_empty() || !problem.contains(wrong), "{problem}");
        }
        for right in [RIGHT, &"-_".repeat(64)] {
            let token = AppToken::parse(right).unwrap();
            assert_eq!(token.as_str(), right);
            assert!(!format!("{token:?}").contains(right));
        }
    }

    #[test]
    fn only_the_whole_token_is_the_token() {
        let token = AppToken::parse(RIGHT).unwrap();
        assert!(token.is(RIGHT));
        let longer = format!("{RIGHT}A");
        for other in ["", &RIGHT[..21], &longer, &RIGHT.to_lowercase()] {
            assert!(!token.is(other), "{other}");
        }
    }
}
