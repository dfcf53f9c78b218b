//! Paths in ZooKeeper.

use std::fmt;
use std::str::FromStr;

/// Path of a lock root: valid by the rules of ZooKeeper (`PathUtils.validatePath`), and neither `/` nor below
/// ZooKeeper's own `/zookeeper`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockPath(String);

impl fmt::Display for LockPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a path cannot be the path of a lock, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPath(String);

impl FromStr for LockPath {
    type Err = InvalidPath;

    fn from_str(path: &str) -> Result<Self, InvalidPath> {
        validate(path).map_err(|problem| InvalidPath(format!("the path of a lock {problem}")))?;
        Ok(Self(path.to_owned()))
    }
}

/// Whether the node belongs to ZooKeeper itself.
pub fn is_reserved(path: &str) -> bool {
    path.strip_prefix("/zookeeper")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Checks an absolute path of a node other than `/`.
///
/// # Errors
/// What the path must be instead. The caller puts its subject before it.
pub(crate) fn validate(path: &str) -> Result<(), String> {
    const EXAMPLE: &str = "such as /locks/report";
    let Some(components) = path.strip_prefix('/') else {
        return Err(format!("must begin with a slash, {EXAMPLE}"));
    };
    if components.is_empty() {
        return Err(format!("must name a node below /, {EXAMPLE}"));
    }
    if components.ends_with('/') {
        return Err(format!("must not end with a slash: write {EXAMPLE}"));
    }
    for component in components.split('/') {
        if component.is_empty() {
            return Err(format!("must not contain two slashes in a row: write {EXAMPLE}"));
        }
        if component == "." || component == ".." {
            return Err(format!(
                "must not contain `{component}` between slashes: write it in full, {EXAMPLE}"
            ));
        }
    }
    match path.chars().find(|c| !is_allowed(*c)) {
        Some(c) => Err(format!(
            "must not contain the character U+{:04X}, which ZooKeeper refuses",
            u32::from(c)
        )),
        None => Ok(()),
    }
}

/// Java counts in UTF-16: everything beyond U+FFFF is a pair of surrogates, which ZooKeeper refuses.
fn is_allowed(c: char) -> bool {
    !c.is_control() && !matches!(u32::from(c), 0xE000..=0xF8FF | 0xFFF0..)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_paths_are_accepted() {
        for path in [
            "/a",
            "/lockkeeper/locks/default/report",
            "/a.b/..c/_d-e",
            "/Bücher/日本",
            "/zookeepers",
        ] {
            assert_eq!(
                path.parse::<LockPath>().map(|p| p.to_string()),
                Ok(path.to_owned())
            );
            assert!(!is_reserved(path));
        }
        assert!(is_reserved("/zookeeper") && is_reserved("/zookeeper/quota"));
    }

    #[test]
    fn what_zookeeper_refuses_is_refused_with_what_would_be_right() {
        for (path, message) in [
            ("", "must begin with a slash"),
            ("locks/report", "must begin with a slash, such as /locks/report"),
            ("/", "must name a node below /"),
            ("/a/", "must not end with a slash"),
            ("//", "must not end with a slash"),
            ("//a", "two slashes in a row"),
            ("/a//b", "two slashes in a row"),
            ("/a/./b", "must not contain `.` between slashes"),
            ("/a/..", "must not contain `..` between slashes"),
            ("/a\0b", "U+0000"),
            ("/a\nb", "U+000A"),
            ("/a\u{7f}", "U+007F"),
            ("/a\u{e000}", "U+E000"),
            ("/a\u{ffff}", "U+FFFF"),
            ("/a\u{1f512}", "U+1F512"),
        ] {
            let error = path.parse::<LockPath>().unwrap_err().to_string();
            assert!(error.contains(message), "{path:?}: {error}");
        }
    }
}
