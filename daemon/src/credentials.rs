//! Names and passwords for the ensemble. They must not be on a command line, so files hold them.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::exit::Failure;
use crate::file;

/// Names and passwords for ZooKeeper's `digest` scheme. Its `Debug` shows none of them.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    file: PathBuf,
    identities: Vec<String>,
}

// === impl Credentials ===

impl Credentials {
    /// Reads `USER:PASSWORD` or `digest:USER:PASSWORD`, one identity in each line. All identities are used.
    ///
    /// # Errors
    /// When the file cannot be read or holds something else. The message never shows the content.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let content = file::read(path, "credentials")?;
        let identities = Self::parse(&content).map_err(|problem| {
            Failure::usage(format!("the credentials file {} {problem}", path.display()))
        })?;
        Ok(Self {
            file: path.to_owned(),
            identities,
        })
    }

    /// The same file, read anew.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_again(&self) -> Result<Self, Failure> {
        Self::read(&self.file)
    }

    /// Each identity, as ZooKeeper's `addauth digest` expects it.
    pub fn identities(&self) -> &[String] {
        &self.identities
    }

    /// The identities in the text of such a file.
    ///
    /// # Errors
    /// What the text must be instead. The caller puts its subject before it. It never shows the text.
    pub fn parse(content: &str) -> Result<Vec<String>, &'static str> {
        const RIGHT: &str = "must hold USER:PASSWORD or digest:USER:PASSWORD, one in each line";
        let identity = |line: &str| {
            let (user, password) = user_and_password(line).ok_or(RIGHT)?;
            Ok(format!("{user}:{password}"))
        };
        let content = content.trim_end_matches(['\r', '\n']);
        content
            .lines()
            .map(identity)
            .chain(content.is_empty().then_some(Err(RIGHT)))
            .collect()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

/// The two parts of one line, `USER:PASSWORD` or `digest:USER:PASSWORD`. Neither is empty; a password may contain any
/// character.
pub fn user_and_password(line: &str) -> Option<(&str, &str)> {
    let (user, password) = line.strip_prefix("digest:").unwrap_or(line).split_once(':')?;
    (!user.is_empty() && !password.is_empty()).then_some((user, password))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_an_identity_in_one_of_two_forms_and_a_password_may_contain_anything() {
        for (content, identities) in [
            ("u:p", &["u:p"][..]),
            ("digest:u:p", &["u:p"]),
            ("u:p:q:", &["u:p:q:"]),
            ("digest:u: p", &["u: p"]),
            ("digest:u.2:new\nu.1:old\n", &["u.2:new", "u.1:old"]),
        ] {
            assert_eq!(Credentials::parse(content).unwrap(), identities, "{content}");
        }
        let scratch = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(scratch.path(), "digest:u:p\r\nv:w\r\n").unwrap();
        let credentials = Credentials::read(scratch.path()).unwrap();
        assert_eq!(credentials.identities(), ["u:p", "v:w"]);
        std::fs::write(scratch.path(), "v:w").unwrap();
        assert_eq!(credentials.read_again().unwrap().identities(), ["v:w"]);
    }

    #[test]
    fn a_wrong_file_is_refused_and_nothing_of_a_password_is_shown() {
        for content in [
            "",
            "\n",
            "secret",
            "digest:secret",
            ":secret",
            "u:",
            "u:secret\nsecret",
            "u:secret\n\nv:secret",
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), content).unwrap();
            let failure = Credentials::read(file.path()).unwrap_err().sentence;
            assert!(failure.ends_with("one in each line"), "{failure}");
            assert!(failure.contains(&*file.path().to_string_lossy()), "{failure}");
            assert!(!failure.contains("secret"), "{failure}");
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "u:secret").unwrap();
        let shown = format!("{:?}", Credentials::read(file.path()).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
