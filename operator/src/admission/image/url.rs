//! Places on the web, as far as registries name them.

use std::fmt;

use hyper::Uri;
use hyper::http::uri::Scheme;

/// A URL without user, password and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// Speaks TLS.
    pub(crate) is_secure: bool,
    /// A name or an address, IPv6 without brackets; in small letters.
    pub(crate) host: String,
    /// Where it is not that of the scheme too.
    pub(crate) port: u16,
    /// Path and query; begins with a slash.
    pub(crate) target: String,
}

impl Url {
    /// A path on a registry, `HOST` or `HOST:PORT`.
    pub(crate) fn on(registry: &str, is_secure: bool, target: String) -> Option<Self> {
        let scheme = if is_secure { "https" } else { "http" };
        Self::parse(&format!("{scheme}://{registry}{target}"))
    }

    /// Reads an absolute one; `None` if it is not one of HTTP.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.split_once('#').map_or(text, |(before, _)| before);
        let uri: Uri = text.parse().ok()?;
        let is_secure = match uri.scheme()? {
            scheme if *scheme == Scheme::HTTPS => true,
            scheme if *scheme == Scheme::HTTP => false,
            _ => return None,
        };
        let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
        let authority = uri.authority()?;
        // A port that cannot be read is not the default one.
        let has_port = authority
            .as_str()
            .trim_end_matches(|c: char| c.is_ascii_digit())
            .ends_with(':');
        let port = match authority.port_u16() {
            Some(port) => port,
            None if has_port => return None,
            None if is_secure => 443,
            None => 80,
        };
        if host.is_empty() || port == 0 {
            return None;
        }
        let target = uri.path_and_query().map_or("/", |target| target.as_str());
        Some(Self {
            is_secure,
            host: host.to_ascii_lowercase(),
            port,
            target: if target.starts_with('/') {
                target.to_owned()
            } else {
                format!("/{target}")
            },
        })
    }

    /// What a `Location` means here (RFC 9110, 10.2.2), of the kinds that registries send.
    pub(crate) fn follow(&self, location: &str) -> Option<Self> {
        if location.starts_with('/') && !location.starts_with("//") {
            let mut url = self.clone();
            url.target = Self::parse(&format!("http://x{location}"))?.target;
            return Some(url);
        }
        Self::parse(location)
    }

    /// Whether both are at one server.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        (self.is_secure, &self.host, self.port) == (other.is_secure, &other.host, other.port)
    }

    /// With one more parameter.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        let separator = if self.target.contains('?') { '&' } else { '?' };
        self.target.push(separator);
        self.target.push_str(name);
        self.target.push('=');
        for byte in value.bytes() {
            // Unreserved (RFC 3986, 2.3).
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.target.push(char::from(byte));
            } else {
                self.target.push_str(&format!("%{byte:02X}"));
            }
        }
        self
    }

    /// The value of the header `host`, and how administrators write it.
    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') {
            format!("[{}]", self.host)
        } else {
            self.host.clone()
        };
        match (self.is_secure, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_secure { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart_and_written_again() {
        for (text, expected) in [
            (
                "https://Registry.Example/v2/",
                Some("https://registry.example/v2/"),
            ),
            (
                "https://registry.example:443?a=b#c",
                Some("https://registry.example/?a=b"),
            ),
            (
                "http://registry.example:443/x",
                Some("http://registry.example:443/x"),
            ),
            (
                "https://user:password@registry.example/x",
                Some("https://registry.example/x"),
            ),
            ("https://[fd00::1]:5000/x", Some("https://[fd00::1]:5000/x")),
            ("ftp://registry.example/", None),
            ("file:///etc/passwd", None),
            ("https:///x", None),
            ("https://registry.example:99999/", None),
            ("https://registry.example:0/", None),
            ("/v2/", None),
            ("", None),
        ] {
            let read = Url::parse(text).map(|url| url.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_location_leads_elsewhere_only_if_it_says_so() {
        let here = Url::parse("https://registry.example/v2/app/blobs/x").unwrap();
        let beside = here.follow("/other?a=b").unwrap();
        assert_eq!(beside.to_string(), "https://registry.example/other?a=b");
        assert!(beside.is_beside(&here));
        for other in [
            "http://registry.example/x",
            "https://registry.example:444/x",
            "https://registry.example.evil/x",
        ] {
            assert!(!here.follow(other).unwrap().is_beside(&here), "{other}");
        }
        assert_eq!(here.follow("//evil.example/x"), None);
    }

    #[test]
    fn a_parameter_says_nothing_but_its_value() {
        let url = Url::parse("https://auth.example/token?a=b").unwrap();
        let url = url.with("service", "x&scope=y#z é");
        assert_eq!(url.target, "/token?a=b&service=x%26scope%3Dy%23z%20%C3%A9");
    }
}
