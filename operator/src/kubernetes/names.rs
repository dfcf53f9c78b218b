//! Names that the API server accepts. A name from a client may be more than one part of a path: with `?` a request
//! for one object becomes a list.

/// Whether this may be the name of a workload, a Secret or a ServiceAccount (DNS subdomain, RFC 1123).
pub(crate) fn is_subdomain(name: &str) -> bool {
    (1..=253).contains(&name.len()) && name.split('.').all(is_part)
}

/// Whether this may be the name of a namespace or of a lock (DNS label, RFC 1123).
pub(crate) fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_part(name)
}

fn is_part(part: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || *byte == b'-')
}

/// The beginning of a text of any length that a client has written, of `most` bytes at most.
pub(crate) fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_text_the_beginning_is_taken_in_whole_characters() {
        assert_eq!(beginning("short", 300), "short");
        assert_eq!(beginning("aéé", 2), "a");
        assert_eq!(beginning(&"x".repeat(3 << 20), 300).len(), 300);
    }

    #[test]
    fn what_could_lead_a_request_elsewhere_is_no_name() {
        for name in ["a", "app-6c9d", "a.b-c.d", "0", &"a".repeat(253)] {
            assert!(is_subdomain(name), "{name}");
        }
        for name in [
            "",
            "?",
            "a?b",
            "a/b",
            "..",
            ".",
            "a..b",
            "-a",
            "a-",
            "A",
            "a%2f",
            "a#",
            "a b",
            "é",
            &"a".repeat(254),
        ] {
            assert!(!is_subdomain(name), "{name}");
            assert!(!is_label(name), "{name}");
        }
        assert!(is_label("shop-1") && is_label(&"a".repeat(63)));
        assert!(!is_label("a.b") && !is_label(&"a".repeat(64)));
    }
}
