//! What a registry wants to see before it answers (RFC 9110, 11.6.1; distribution specification, token
//! authentication).

/// The value of `WWW-Authenticate`, as far as registries use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// Name and password with each request.
    Basic,
    /// A token, which `realm` gives out.
    Bearer {
        /// A URL.
        realm: String,
        /// The service that the token is for.
        service: Option<String>,
    },
}

impl Challenge {
    /// Reads a header; `None` for what is neither.
    pub(crate) fn parse(header: &str) -> Option<Self> {
        let (scheme, mut rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let (mut realm, mut service) = (None, None);
        while let Some((name, value, after)) = parameter(rest) {
            rest = after;
            match name.to_ascii_lowercase().as_str() {
                "realm" => realm = Some(value),
                "service" => service = Some(value),
                // The scope is ours to choose.
                _ => {}
            }
        }
        Some(Self::Bearer {
            realm: realm?,
            service,
        })
    }
}

/// The first `name=value` or `name="value"`, and what comes after it.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', '\t', ',']);
    let (name, value) = text.split_once('=')?;
    let value = value.trim_start();
    let Some(quoted) = value.strip_prefix('"') else {
        let (value, rest) = value.split_once(',').unwrap_or((value, ""));
        return Some((name.trim(), value.trim().to_owned(), rest));
    };
    let mut content = String::new();
    let mut characters = quoted.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return Some((name.trim(), content, &quoted[position + 1..])),
            '\\' => content.push(characters.next()?.1),
            other => content.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer {
            realm: realm.to_owned(),
            service: service.map(str::to_owned),
        })
    }

    #[test]
    fn the_challenges_of_registries_are_understood() {
        for (header, expected) in [
            ("Basic realm=\"gate\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://auth.docker.io/token\",service=\"registry.docker.io\",scope=\"a:b,c\"",
                bearer("https://auth.docker.io/token", Some("registry.docker.io")),
            ),
            (
                "bearer scope=\"repository:a:pull,push\", Realm=\"https://x/\\\"y\"",
                bearer("https://x/\"y", None),
            ),
            (
                "Bearer realm=https://x/t, service=y",
                bearer("https://x/t", Some("y")),
            ),
            ("Bearer service=\"y\"", None),
            ("Bearer realm=\"https://x", None),
            ("Bearer realm=\"\\", None),
            ("Negotiate", None),
            ("", None),
        ] {
            assert_eq!(Challenge::parse(header), expected, "{header}");
        }
    }
}
