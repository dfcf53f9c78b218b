//! Objects of Kubernetes in the documentation, which users copy.

use std::path::PathBuf;

use serde_json::Value;

use crate::content::blocks;
use crate::repository::{files, read};

/// A piece of YAML in the documentation.
#[derive(Debug)]
pub struct Yaml {
    pub file: PathBuf,
    /// Its content: one document.
    pub value: Value,
}

/// Every document of every block of YAML in `README.md` and in the pages of `docs`, and of every YAML file there.
///
/// # Errors
/// A sentence for each that is not YAML.
pub fn yaml() -> Result<Vec<Yaml>, Vec<String>> {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for (file, text) in texts() {
        // The parser takes one document at a time.
        for document in text.split("\n---\n") {
            match serde_saphyr::from_str(document) {
                Ok(value) => found.push(Yaml {
                    file: file.clone(),
                    value,
                }),
                Err(error) => faults.push(format!("{}: {error}\n{document}", file.display())),
            }
        }
    }
    if faults.is_empty() { Ok(found) } else { Err(faults) }
}

fn texts() -> Vec<(PathBuf, String)> {
    let is_documentation = |file: &PathBuf| file.starts_with("docs") || file.ends_with("README.md");
    let mut texts = Vec::new();
    for file in files().into_iter().filter(is_documentation) {
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("yaml") => texts.push((file.clone(), read(&file))),
            Some("md") => {
                let of_yaml = blocks(&read(&file))
                    .into_iter()
                    .filter(|block| block.language == "yaml");
                texts.extend(of_yaml.map(|block| (file.clone(), block.text)));
            }
            _ => {}
        }
    }
    texts
}

// === impl Yaml ===

impl Yaml {
    fn field(&self, name: &str) -> &str {
        self.value[name].as_str().unwrap_or_default()
    }

    /// Its kind, if it is an object of an API server. A part of an object has none, nor has a configuration
    /// file in the form of an object.
    pub fn kind(&self) -> Option<&str> {
        let (version, kind) = (self.field("apiVersion"), self.field("kind"));
        let is_file = version.starts_with("apiserver.config.k8s.io/") || (version, kind) == ("v1", "Config");
        (!version.is_empty() && !kind.is_empty() && !is_file).then_some(kind)
    }
}
