//! Names that become parts of requests. Tenants write some of them, and a name with `/` or `?` would make the request of
//! the user who asks another one.

/// Whether this may be the name of an object (DNS subdomain, RFC 1123).
pub(crate) fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.');
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 253
        && text.bytes().all(is_part)
        && is_end(bytes.first())
        && is_end(bytes.last())
        && !text.contains("..")
}

/// Whether this may be the name of a kind, or of a version of an API.
pub(crate) fn is_word(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_lead_a_request_elsewhere_is_no_name() {
        for name in ["a", "report-6c9d", "n1.example.org", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in [
            "",
            "evil/proxy/x",
            "noisy/log?follow=true",
            "..",
            "a..b",
            "-a",
            "a-",
            "A",
            "a%2f",
            "a b",
        ] {
            assert!(!is_name(name), "{name}");
        }
        assert!(is_word("ReplicaSet") && is_word("v1beta1"));
        assert!(!is_word("") && !is_word("Pod/log") && !is_word("v1?x"));
    }
}
