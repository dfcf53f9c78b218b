//! The images, as OCI archives.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{MACHINES, VERSION, dist, extract, has, machine_of, output, said, words};

const IMAGES: [&str; 2] = ["lockkeeper", "lockkeeper-operator"];

/// The bytes of a blob, which have the digest that names them.
fn blob(layout: &Path, descriptor: &Value) -> Vec<u8> {
    let digest = descriptor["digest"].as_str().unwrap();
    let file = layout.join("blobs").join(digest.replace(':', "/"));
    let bytes = fs::read(&file).unwrap_or_else(|error| panic!("{digest}: {error}"));
    assert_eq!(descriptor["size"], bytes.len(), "{digest}");
    let sum = said("sha256sum", [&file]);
    assert_eq!(format!("sha256:{}", sum.split(' ').next().unwrap()), digest);
    bytes
}

fn json(layout: &Path, descriptor: &Value) -> Value {
    serde_json::from_slice(&blob(layout, descriptor)).unwrap()
}

/// What is in the archive of an image.
fn unpacked(dist: &Path, image: &str) -> tempfile::TempDir {
    let layout = tempfile::tempdir().unwrap();
    let archive = dist.join(format!("{image}-{VERSION}.oci.tar"));
    extract(&archive, layout.path());
    layout
}

/// The descriptor of the one image of a layout: of the index of both machines.
fn outer(layout: &Path) -> Value {
    let outer: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    assert_eq!(outer["manifests"].as_array().unwrap().len(), 1, "one image");
    outer["manifests"][0].clone()
}

/// The digest by which registries know an image.
pub(crate) fn digest(dist: &Path, image: &str) -> String {
    let outer = outer(unpacked(dist, image).path());
    outer["digest"].as_str().unwrap().to_owned()
}

/// The manifest of each machine.
fn manifests(layout: &Path) -> BTreeMap<String, Value> {
    let version = fs::read_to_string(layout.join("oci-layout")).unwrap();
    assert!(version.contains("\"imageLayoutVersion\""), "{version}");
    let outer = outer(layout);
    assert_eq!(outer["annotations"]["org.opencontainers.image.ref.name"], VERSION);
    let index = json(layout, &outer);
    assert_eq!(index["mediaType"], "application/vnd.oci.image.index.v1+json");
    let manifests = index["manifests"].as_array().unwrap().iter();
    manifests
        .map(|manifest| {
            assert_eq!(manifest["platform"]["os"], "linux");
            let machine = manifest["platform"]["architecture"].as_str().unwrap();
            (machine.to_owned(), json(layout, manifest))
        })
        .collect()
}

#[test]
fn an_image_is_one_index_of_both_machines_whose_parts_have_their_digests() {
    let Some(dist) = dist() else { return };
    let digests = fs::read_to_string(dist.join(format!("images-{VERSION}.txt"))).unwrap();
    assert_eq!(digests.lines().count(), IMAGES.len(), "{digests}");
    for image in IMAGES {
        let layout = unpacked(&dist, image);
        let digest = digest(&dist, image);
        assert!(
            digests.lines().any(|line| line == format!("{image}@{digest}")),
            "{digests}"
        );
        let manifests = manifests(layout.path());
        assert!(manifests.keys().eq(MACHINES), "{image}: {manifests:?}");
        for (machine, manifest) in &manifests {
            let config = json(layout.path(), &manifest["config"]);
            assert_eq!(config["architecture"], **machine);
            let settings = &config["config"];
            assert_eq!(settings["Entrypoint"][0], format!("/{image}"));
            assert_eq!(settings["User"], "65532:65532");
            assert_eq!(settings["Labels"]["org.opencontainers.image.version"], VERSION);
            let files = tempfile::tempdir().unwrap();
            for layer in manifest["layers"].as_array().unwrap() {
                let bytes = blob(layout.path(), layer);
                let file = files.path().join("layer");
                fs::write(&file, bytes).unwrap();
                extract(&file, files.path());
            }
            assert_eq!(machine_of(&files.path().join(image)), machine);
        }
    }
}

#[test]
fn buildah_takes_the_image_of_either_machine_out_of_the_archive() {
    let Some(dist) = dist() else { return };
    if !has("buildah") {
        return;
    }
    for image in IMAGES {
        let archive = format!("oci-archive:{}/{image}-{VERSION}.oci.tar", dist.display());
        for machine in MACHINES {
            let folder = tempfile::tempdir().unwrap();
            let [root, run] = ["root", "run"].map(|name| folder.path().join(name));
            let buildah = words!["--root", root, "--runroot", run, "--storage-driver", "vfs"];
            let with = |more: &[&str]| {
                let more = more.iter().map(Into::into);
                buildah.iter().cloned().chain(more).collect::<Vec<_>>()
            };
            let id = said("buildah", with(&["pull", "--quiet", "--arch", machine, &archive]));
            let told = said("buildah", with(&["inspect", "--type", "image", id.trim()]));
            let told: Value = serde_json::from_str(&told).unwrap();
            assert_eq!(told["OCIv1"]["architecture"], machine, "{image}");
            // Its files may be those of another user here.
            output("buildah", with(&["rmi", "--all"]));
        }
    }
}
