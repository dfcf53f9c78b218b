//! What a registry has after `.ci/release/publish`.

use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use lockkeeper_testbed::Process;
use lockkeeper_testbed::cluster::build::Programs;
use lockkeeper_testbed::process::wait_for;
use serde_json::json;

use crate::images::digest;
use crate::{MACHINES, VERSION, dist, has, repository, said, words};

/// As Artifact Hub gives one to a repository of charts.
const ID: &str = "0f9a5b3e-6a3c-4b8e-9f6e-2f1f0d9c8b7a";

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(60);

/// The registry of the test cluster, on a port of its own.
fn registry(programs: &Programs, folder: &Path) -> (Process, String) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let configuration = folder.join("registry.json");
    let text = json!({
        "version": "0.1", "log": {"level": "warn"}, "http": {"addr": address},
        "storage": {"filesystem": {"rootdirectory": folder.join("registry")}},
    });
    std::fs::write(&configuration, text.to_string()).unwrap();
    let mut command = programs.command("registry");
    command
        .arg("serve")
        .arg(&configuration)
        .env("OTEL_TRACES_EXPORTER", "none");
    let registry = Process::spawn("registry", command).unwrap();
    wait_for(BOUND, || std::net::TcpStream::connect(&address).ok()).expect("the registry listens");
    (registry, address)
}

/// Runs `.ci/release/publish` for a registry without TLS.
pub(crate) fn publish(dist: &Path, registry: &str, helm: &Path, more: &[(&str, &str)]) {
    let published = try_to_publish(dist, registry, helm, more);
    let errors = String::from_utf8_lossy(&published.stderr);
    assert!(published.status.success(), "{errors}");
}

fn try_to_publish(dist: &Path, registry: &str, helm: &Path, more: &[(&str, &str)]) -> Output {
    Command::new(repository().join(".ci/release/publish"))
        .args([VERSION, registry])
        .arg(dist)
        .env("HELM", helm)
        .env("PLAIN_HTTP", "1")
        .envs(more.iter().copied())
        .output()
        .unwrap()
}

#[test]
fn images_and_charts_are_in_the_registry_as_they_are_in_the_release() {
    let Some(dist) = dist() else { return };
    if !has("skopeo") {
        return;
    }
    let programs = match Programs::found() {
        Ok(programs) => programs,
        Err(unsupported) => return lockkeeper_skip::skip(unsupported),
    };
    let folder = tempfile::tempdir().unwrap();
    let (_registry, address) = registry(&programs, folder.path());
    let helm = programs.path("helm");
    publish(
        &dist,
        &format!("{address}/Tools"),
        &helm,
        &[("ARTIFACTHUB_IDS", &format!("lockkeeper={ID}"))],
    );

    for image in ["lockkeeper", "lockkeeper-operator"] {
        let wanted = digest(&dist, image);
        let name = format!("docker://{address}/tools/{image}");
        for machine in MACHINES {
            let inspect = words![
                "inspect",
                "--tls-verify=false",
                "--override-arch",
                machine,
                format!("{name}@{wanted}"),
            ];
            let told: serde_json::Value = serde_json::from_str(&said("skopeo", inspect)).unwrap();
            assert_eq!(told["Architecture"], machine, "{image}");
        }
        let tags = said("skopeo", words!["list-tags", "--tls-verify=false", name]);
        assert!(tags.contains(&format!("\"{VERSION}\"")), "{tags}");
    }
    for chart in ["lockkeeper-crds", "lockkeeper"] {
        let pulled = tempfile::tempdir().unwrap();
        said(
            &helm,
            words![
                "pull",
                "--plain-http",
                "--version",
                VERSION,
                "--destination",
                pulled.path(),
                format!("oci://{address}/tools/charts/{chart}"),
            ],
        );
        let file = format!("{chart}-{VERSION}.tgz");
        assert!(
            std::fs::read(pulled.path().join(&file)).unwrap() == std::fs::read(dist.join(&file)).unwrap(),
            "{file}"
        );
    }
    assert_is_claimed(&format!("{address}/tools/charts/lockkeeper"));
    // Once more the same is the same; anything else would replace what users have.
    publish(&dist, &format!("{address}/tools"), &helm, &[]);
    let images = format!("images-{VERSION}.txt");
    for changed in [images, format!("lockkeeper-crds-{VERSION}.tgz")] {
        let other = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(&dist).unwrap().map(|file| file.unwrap().path()) {
            symlink(&file, other.path().join(file.file_name().unwrap())).unwrap();
        }
        std::fs::remove_file(other.path().join(&changed)).unwrap();
        std::fs::write(other.path().join(&changed), "other").unwrap();
        let refused = try_to_publish(other.path(), &format!("{address}/tools"), &helm, &[]);
        let told = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(64), "{told}");
        assert!(told.contains("is in the registry already"), "{told}");
    }
    // A registry that does not answer says nothing of what it has.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = silent.local_addr().unwrap().to_string();
    drop(silent);
    let refused = try_to_publish(&dist, &format!("{nowhere}/tools"), &helm, &[]);
    let told = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(69), "{told}");
    assert!(told.contains("does not say whether it has"), "{told}");
}

/// Artifact Hub finds its ID of a repository of charts where its documentation says.
fn assert_is_claimed(charts: &str) {
    let named = |what: &str| format!("docker://{charts}{what}");
    let raw = words!["inspect", "--raw", "--tls-verify=false", named(":artifacthub.io")];
    let manifest: serde_json::Value = serde_json::from_str(&said("skopeo", raw)).unwrap();
    let config = "application/vnd.cncf.artifacthub.config.v1+yaml";
    assert_eq!(manifest["config"]["mediaType"], config);
    let layer = &manifest["layers"][0];
    let kind = "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml";
    assert_eq!(layer["mediaType"], kind);
    let pulled = tempfile::tempdir().unwrap();
    let to = format!("dir:{}", pulled.path().display());
    said(
        "skopeo",
        words!["copy", "--src-tls-verify=false", named(":artifacthub.io"), to],
    );
    let digest = layer["digest"].as_str().unwrap().trim_start_matches("sha256:");
    let text = std::fs::read_to_string(pulled.path().join(digest)).unwrap();
    assert_eq!(text, format!("repositoryID: {ID}\n"));
}

#[test]
fn what_is_no_id_of_artifact_hub_is_refused_in_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("oci");
    let output = crate::output(
        repository().join(".ci/release/artifacthub"),
        words!["lockkeeper", &layout],
    );
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && !layout.exists(), "{told}");
    let is_clear = told.contains("lockkeeper is no ID of a repository");
    assert!(is_clear && told.lines().count() == 1, "{told}");
}
