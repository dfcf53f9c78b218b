//! The manifests of the documentation, applied to a real API server.

use std::fs;

use lockkeeper_documents::yaml;
use lockkeeper_product::space::Space;
use serde_json::json;
use tempfile::NamedTempFile;

#[test]
fn the_api_server_takes_every_object_of_the_documentation() {
    let Some(space) = Space::new("documents") else {
        return;
    };
    let pieces = yaml().unwrap_or_else(|faults| panic!("{}", faults.join("\n")));
    let mut kinds = Vec::new();
    for mut piece in pieces {
        let Some(kind) = piece.kind() else { continue };
        kinds.push(kind.to_owned());
        // Even for a dry run the namespace has to exist. All kinds of the documentation are namespaced.
        piece.value["metadata"]["namespace"] = json!(space.name);
        let file = NamedTempFile::new().unwrap();
        fs::write(file.path(), piece.value.to_string()).unwrap();
        let path = file.path().to_str().unwrap();
        let create = [
            "create",
            "--dry-run=server",
            "--validate=strict",
            "--filename",
            path,
        ];
        if let Err(error) = space.kubectl(&create) {
            panic!("{}: {error:#}\n{:#}", piece.file.display(), piece.value);
        }
    }
    assert!(kinds.len() >= 3, "{kinds:?}");
}
