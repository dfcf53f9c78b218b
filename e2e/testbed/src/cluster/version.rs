//! Which Kubernetes a cluster is: the newest that we build, unless the environment names an older one.

use std::sync::OnceLock;

/// The environment variable that names the minor version of Kubernetes of this run's cluster, such as `1.30`.
pub const VERSION: &str = "LOCKKEEPER_KUBERNETES";

/// The versions, and how the name of their folder with `go.mod` goes on.
const VERSIONS: [(&str, &str); 3] = [("1.36", ""), ("1.33", "-1.33"), ("1.30", "-1.30")];

/// How the name of the folder with the `go.mod` of this run's version goes on after `kubernetes`.
///
/// # Panics
/// When [`VERSION`] names none of [`VERSIONS`]: the tests would run on something else than was asked for.
pub(crate) fn suffix() -> &'static str {
    static CHOSEN: OnceLock<&str> = OnceLock::new();
    CHOSEN.get_or_init(|| match std::env::var(VERSION) {
        Ok(version) => suffix_of(&version).unwrap_or_else(|| {
            let versions = VERSIONS.map(|(version, _)| version).join(", ");
            panic!("{VERSION}={version} is no version of Kubernetes that can be built here; have: {versions}")
        }),
        Err(_) => VERSIONS[0].1,
    })
}

fn suffix_of(version: &str) -> Option<&'static str> {
    VERSIONS
        .iter()
        .find(|(name, _)| *name == version)
        .map(|version| version.1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn each_version_is_that_of_a_module_file_and_no_other_word_is_one() {
        for (version, suffix) in VERSIONS {
            assert_eq!(suffix_of(version), Some(suffix));
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("cluster/kubernetes{suffix}"));
            let text = std::fs::read_to_string(folder.join("go.mod")).unwrap();
            let pinned = format!("\tk8s.io/kubernetes v{version}.");
            assert_eq!(text.matches(&pinned).count(), 1, "{version}");
        }
        assert_eq!(suffix_of("1.2"), None);
    }
}
