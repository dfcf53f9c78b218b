//! The token in the path of a pod's probes and hooks.

use lockkeeper_daemon::token::AppToken;

use crate::identity::random;

/// Bytes of the token in the path of a pod's probes: 192 bits, too.
const TOKEN_BYTES: usize = 24;

/// A token for the path of one pod's probes and hooks.
pub(crate) fn draw_token() -> AppToken {
    AppToken::parse(&random::<TOKEN_BYTES>()).expect("base64 for paths is what a token is made of")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_never_the_same_twice() {
        let tokens: std::collections::BTreeSet<_> =
            (0..100).map(|_| draw_token().as_str().to_owned()).collect();
        assert_eq!(tokens.len(), 100);
        // 24 bytes in base64.
        assert!(tokens.iter().all(|token| token.len() == 32), "{tokens:?}");
    }
}
