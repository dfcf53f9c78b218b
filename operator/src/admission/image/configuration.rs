//! What registries keep of an image, as far as it counts here: manifests, indexes and configurations (OCI
//! image specification, `manifest.md`, `image-index.md`, `config.md`).

use std::fmt::Write;

use aws_lc_rs::digest;
use serde::Deserialize;

use crate::admission::inject::ImageConfig;

/// A command line may be this long, in bytes: a kernel takes no more of one word (`MAX_ARG_STRLEN`, execve(2)).
const MAX_COMMAND: usize = 128 << 10;

/// The content behind a digest.
#[derive(Debug)]
pub enum Document {
    /// The digest of an image's configuration.
    Image(String),
    /// The images of several platforms.
    Index(Vec<Entry>),
}

/// An image of an index.
#[derive(Debug, Deserialize)]
pub struct Entry {
    /// The digest of its manifest.
    pub(crate) digest: String,
    platform: Option<Platform>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("what it has there is no image")]
    Manifest,
    #[error("the configuration is not that of an image")]
    Configuration,
    /// Longer than a process could have.
    #[error("the command in the image is longer than 128 KiB")]
    TooLong,
    /// The content is not what was asked for, or is named by something else than its SHA-256.
    #[error("its content is not that of its SHA-256 digest")]
    Digest,
}

#[derive(Debug, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Option<Descriptor>,
    manifests: Option<Vec<Entry>>,
}

#[derive(Deserialize)]
struct Descriptor {
    digest: String,
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    config: Option<Process>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Process {
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    user: Option<String>,
}

impl Document {
    /// Reads a manifest or an index.
    ///
    /// # Errors
    /// When it is neither, or names a configuration by something else than its SHA-256.
    pub(crate) fn read(json: &[u8]) -> Result<Self, Unusable> {
        match serde_json::from_slice(json).map_err(|_| Unusable::Manifest)? {
            Manifest {
                manifests: Some(entries),
                ..
            } => Ok(Self::Index(entries)),
            Manifest {
                config: Some(config), ..
            } if is_digest(&config.digest) => Ok(Self::Image(config.digest)),
            Manifest { config: Some(_), .. } => Err(Unusable::Digest),
            _ => Err(Unusable::Manifest),
        }
    }
}

impl Entry {
    /// Whether it runs on Linux, on this architecture if one is given. Attestations are entries too, of the
    /// platform `unknown/unknown`.
    pub fn runs(&self, architecture: Option<&str>) -> bool {
        self.platform.as_ref().is_some_and(|platform| {
            platform.os == "linux"
                && match architecture {
                    Some(wanted) => platform.architecture == wanted,
                    None => platform.architecture != "unknown",
                }
        })
    }
}

/// Reads the configuration of an image.
///
/// # Errors
/// When it is not a configuration, or no process could have such a command.
pub(crate) fn read(json: &[u8]) -> Result<ImageConfig, Unusable> {
    let configuration: Configuration = serde_json::from_slice(json).map_err(|_| Unusable::Configuration)?;
    let process = configuration.config.unwrap_or_default();
    let config = ImageConfig {
        entrypoint: process.entrypoint.unwrap_or_default(),
        cmd: process.cmd.unwrap_or_default(),
        user: process.user.unwrap_or_default(),
    };
    let words = config.entrypoint.iter().chain(&config.cmd).chain([&config.user]);
    // With the pointer to each, as the kernel counts.
    let length: usize = words.map(|word| word.len() + size_of::<usize>()).sum();
    if length > MAX_COMMAND {
        return Err(Unusable::TooLong);
    }
    Ok(config)
}

pub(crate) fn sha256(content: &[u8]) -> String {
    let sum = digest::digest(&digest::SHA256, content);
    let mut text = "sha256:".to_owned();
    for byte in sum.as_ref() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Whether this is a digest as [`sha256`] makes them: also fit to be a part of a URL.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_may_say_little_and_not_too_much() {
        for nothing in ["{}", r#"{"config":{}}"#, r#"{"config":null}"#] {
            assert_eq!(
                read(nothing.as_bytes()).unwrap(),
                ImageConfig::default(),
                "{nothing}"
            );
        }
        let config = read(br#"{"config":{"Entrypoint":["/a"],"Cmd":["b"],"User":"c"}}"#).unwrap();
        assert_eq!(
            (config.entrypoint, config.cmd, config.user),
            (vec!["/a".to_owned()], vec!["b".to_owned()], "c".to_owned())
        );
        let words = vec!["\"\""; 20_000].join(",");
        let long = format!(r#"{{"config":{{"Cmd":[{words}]}}}}"#);
        assert_eq!(read(long.as_bytes()), Err(Unusable::TooLong));
        assert_eq!(read(b"nonsense"), Err(Unusable::Configuration));
    }

    #[test]
    fn a_manifest_names_its_configuration_by_a_digest_and_by_nothing_long() {
        let read = |digest: &str| {
            Document::read(format!(r#"{{"config":{{"digest":"{digest}"}}}}"#).as_bytes()).map(|_| ())
        };
        assert_eq!(read(&sha256(b"")), Ok(()));
        assert_eq!(read(&"x".repeat(1 << 20)), Err(Unusable::Digest));
    }

    #[test]
    fn digests_are_sha256_and_nothing_else() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(sha256(b""), empty);
        assert!(is_digest(empty));
        for other in [
            "",
            "sha256:",
            "sha256:../../x",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &empty.to_uppercase(),
        ] {
            assert!(!is_digest(other), "{other}");
        }
    }
}
