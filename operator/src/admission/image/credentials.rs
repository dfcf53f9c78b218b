//! Pull secrets: which name and password opens which registry.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use oci_spec::distribution::Reference;
use serde::Deserialize;

/// Name and password for a registry. Its `Debug` does not show the password.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    pub user: String,
    pub password: String,
}

/// What a pod's pull secrets hold, by registry or a path in it.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    entries: Vec<(String, Credential)>,
}

#[derive(Deserialize)]
struct Document {
    auths: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Entry {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
    #[serde(default)]
    auth: String,
}

impl Credentials {
    /// Those of a Secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg`.
    /// What cannot be read is left out, as a kubelet does.
    pub fn of(secret: &Secret) -> Self {
        let data = secret.data.as_ref();
        let of = |key: &str| {
            data.and_then(|data| data.get(key))
                .map(|bytes| bytes.0.as_slice())
        };
        let entries = match (of(".dockerconfigjson"), of(".dockercfg")) {
            (Some(json), _) => serde_json::from_slice::<Document>(json).map(|document| document.auths),
            (None, Some(json)) => serde_json::from_slice::<BTreeMap<String, Entry>>(json),
            (None, None) => return Self::default(),
        };
        let entries = entries.unwrap_or_default().into_iter();
        Self {
            entries: entries
                .filter_map(|(place, entry)| Some((normal(&place), entry.credential()?)))
                .collect(),
        }
    }

    /// What they take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let of = |(place, one): &(String, Credential)| place.len() + one.user.len() + one.password.len();
        self.entries
            .iter()
            .map(|entry| of(entry) + size_of_val(entry))
            .sum()
    }

    /// Adds those of another Secret of the pod.
    pub(crate) fn append(&mut self, mut more: Self) {
        self.entries.append(&mut more.entries);
    }

    /// Those for an image, the most specific place first.
    pub fn matching(&self, image: &Reference) -> Vec<Credential> {
        let whole = format!("{}/{}", image.registry(), image.repository());
        let mut found: Vec<_> = self
            .entries
            .iter()
            .filter(|(place, _)| covers(place, &whole))
            .collect();
        found.sort_by_key(|(place, _)| std::cmp::Reverse(place.len()));
        found
            .into_iter()
            .map(|(_, credential)| credential.clone())
            .collect()
    }
}

impl Entry {
    fn credential(self) -> Option<Credential> {
        if !self.username.is_empty() {
            return Some(Credential {
                user: self.username,
                password: self.password,
            });
        }
        let decoded = String::from_utf8(STANDARD.decode(self.auth.trim()).ok()?).ok()?;
        let (user, password) = decoded.split_once(':')?;
        Some(Credential {
            user: user.to_owned(),
            password: password.trim_end_matches('\0').to_owned(),
        })
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// `https://index.docker.io/v1/` is how Docker writes its own registry, and that has other names too.
fn normal(place: &str) -> String {
    let bare = place
        .trim_start_matches("https://")
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let (host, path) = bare.split_once('/').unwrap_or((bare, ""));
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    };
    match path {
        "" | "v1" | "v2" => host.to_owned(),
        path => format!("{host}/{path}"),
    }
}

/// The same host, or a wildcard for parts of its name (`*.example.com`), and the same path or one above
/// (`pkg/credentialprovider`).
fn covers(place: &str, image: &str) -> bool {
    let (host, path) = place.split_once('/').unwrap_or((place, ""));
    let (image_host, image_path) = image.split_once('/').unwrap_or((image, ""));
    let parts = || host.split('.').zip(image_host.split('.'));
    let same_host = host.split('.').count() == image_host.split('.').count()
        && parts().all(|(wanted, part)| wanted == part || wanted == "*");
    let below = image_path
        .strip_prefix(path)
        .is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'));
    same_host && below
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn credentials(json: &str) -> Credentials {
        let data = BTreeMap::from([(
            ".dockerconfigjson".to_owned(),
            ByteString(json.as_bytes().to_vec()),
        )]);
        Credentials::of(&Secret {
            data: Some(data),
            ..Secret::default()
        })
    }

    #[test]
    fn an_image_is_asked_for_with_the_most_specific_of_the_secrets_that_cover_it() {
        let credentials = credentials(
            r#"{"auths":{
                "https://index.docker.io/v1/": {"auth":"aHViOnNlY3JldA=="},
                "registry.example": {"username":"all","password":"p"},
                "registry.example/team": {"username":"team","password":"p"},
                "*.dkr.example": {"username":"wild","password":"p"}}}"#,
        );
        for (image, users) in [
            ("busybox", &["hub"][..]),
            ("registry.example/team/app:1", &["team", "all"]),
            ("registry.example/teams/app:1", &["all"]),
            ("a.dkr.example/app", &["wild"]),
            ("a.b.dkr.example/app", &[]),
            ("other.example/app", &[]),
        ] {
            let found = credentials.matching(&image.parse().unwrap());
            let found: Vec<_> = found.iter().map(|credential| credential.user.as_str()).collect();
            assert_eq!(found, users, "{image}");
        }
        assert!(!format!("{credentials:?}").contains("secret"));
    }

    #[test]
    fn a_broken_secret_is_as_good_as_none() {
        for json in ["", "{}", r#"{"auths":{"x":{"auth":"!"}}}"#] {
            assert!(
                credentials(json).matching(&"x/app".parse().unwrap()).is_empty(),
                "{json}"
            );
        }
    }
}
