//! Checksums and the signature.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{MACHINES, PROGRAMS, VERSION, dist, has, output, repository, said, words};

const SUMS: &str = "SHA256SUMS";

/// The signature of the list: for openssl, and for cosign.
pub(crate) const SIGNATURES: [&str; 2] = ["SHA256SUMS.sig", "SHA256SUMS.sigstore.json"];

fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_release_consists_of_what_the_page_about_releases_says_and_of_nothing_else() {
    let Some(dist) = dist() else { return };
    let mut expected = BTreeSet::from([SUMS.to_owned()]);
    for machine in MACHINES {
        for program in PROGRAMS {
            let name = format!("{program}_{VERSION}_linux_{machine}");
            expected.extend([name.clone(), format!("{name}.tar.gz"), format!("{name}.cdx.json")]);
        }
        expected.insert(format!("lockkeeper_{VERSION}_{machine}.deb"));
    }
    for machine in ["x86_64", "aarch64"] {
        expected.insert(format!("lockkeeper-{VERSION}-1.{machine}.rpm"));
    }
    for name in ["lockkeeper", "lockkeeper-operator"] {
        expected.insert(format!("{name}-{VERSION}.oci.tar"));
    }
    for chart in ["lockkeeper", "lockkeeper-crds"] {
        expected.insert(format!("{chart}-{VERSION}.tgz"));
    }
    expected.extend([statement(), format!("images-{VERSION}.txt")]);
    let mut made = names(&dist);
    // Only where there was a key.
    made.retain(|name| !SIGNATURES.contains(&name.as_str()));
    assert_eq!(made, expected);
}

#[test]
fn the_list_of_checksums_names_every_file_and_is_right() {
    let Some(dist) = dist() else { return };
    let listed = fs::read_to_string(dist.join(SUMS)).unwrap();
    let listed: BTreeSet<String> = listed
        .lines()
        .filter_map(|line| Some(line.split_once("  ")?.1.to_owned()))
        .collect();
    let mut made = names(&dist);
    made.retain(|name| name != SUMS && !SIGNATURES.contains(&name.as_str()));
    assert_eq!(listed, made);
    let script = "cd \"$0\" && sha256sum --check --strict --quiet SHA256SUMS";
    said("sh", words!["-c", script, dist]);
}

/// The name of the in-toto statement.
fn statement() -> String {
    format!("lockkeeper-{VERSION}.intoto.json")
}

#[test]
fn the_statement_says_which_files_were_made_from_which_commit() {
    let Some(dist) = dist() else { return };
    let told: serde_json::Value = serde_json::from_slice(&fs::read(dist.join(statement())).unwrap()).unwrap();
    assert_eq!(told["_type"], "https://in-toto.io/Statement/v1");
    assert_eq!(told["predicateType"], "https://slsa.dev/provenance/v1");
    let subjects = told["subject"].as_array().unwrap().iter().map(|one| {
        let (sum, name) = (one["digest"]["sha256"].as_str(), one["name"].as_str());
        format!("{}  {}", sum.unwrap(), name.unwrap())
    });
    let subjects: BTreeSet<_> = subjects.collect();
    let listed = fs::read_to_string(dist.join(SUMS)).unwrap();
    let others = |line: &&str| !line.ends_with(&statement());
    let listed: BTreeSet<_> = listed.lines().filter(others).map(str::to_owned).collect();
    assert_eq!(subjects, listed);
    let commit = said("git", words!["-C", repository(), "rev-parse", "HEAD"]);
    let source = &told["predicate"]["buildDefinition"]["resolvedDependencies"][0];
    assert_eq!(source["digest"]["gitCommit"], commit.trim());
}

/// Makes a key, and returns the paths of its private and its public half.
fn key(folder: &Path, name: &str, curve: &str) -> [std::path::PathBuf; 2] {
    let [private, public] = [format!("{name}.key"), format!("{name}.pub")].map(|file| folder.join(file));
    let curve = format!("ec_paramgen_curve:{curve}");
    said(
        "openssl",
        words!["genpkey", "-algorithm", "EC", "-pkeyopt", curve, "-out", &private],
    );
    said(
        "openssl",
        words!["pkey", "-in", &private, "-pubout", "-out", &public],
    );
    [private, public]
}

/// Whether openssl takes the signature beside a file, with the commands of docs/releasing.md.
fn is_genuine(file: &Path, public: &Path) -> bool {
    let script = "base64 --decode \"$0.sig\" >\"$0.raw\" && \
                  openssl dgst -sha256 -verify \"$1\" -signature \"$0.raw\" \"$0\"";
    output("sh", words!["-c", script, file, public]).status.success()
}

/// Whether cosign takes the bundle beside a file, with the command of docs/releasing.md.
fn is_genuine_for_cosign(file: &Path, public: &Path) -> bool {
    let mut bundle = file.as_os_str().to_owned();
    bundle.push(".sigstore.json");
    let command = ["-C", "e2e/release/cosign", "tool", "cosign", "verify-blob"].map(Into::into);
    let offline = "--insecure-ignore-tlog=true".into();
    let arguments = words!["--key", public, "--bundle", bundle, file];
    let arguments = command.into_iter().chain([offline]).chain(arguments);
    // It would keep its files in HOME.
    let output = std::process::Command::new("go")
        .args(arguments)
        .current_dir(repository())
        .env("TUF_ROOT", file.parent().unwrap())
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let is_told = told.contains("Verified OK") || told.contains("invalid signature");
    assert!(is_told, "cosign gives another answer: {told}");
    output.status.success()
}

#[test]
fn the_list_is_signed_by_the_key_that_was_given_and_by_none_otherwise() {
    let Some(dist) = dist() else { return };
    let key = std::env::var("LOCKKEEPER_RELEASE_KEY").unwrap_or_default();
    if key.is_empty() {
        assert!(SIGNATURES.iter().all(|name| !dist.join(name).exists()));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let public = folder.path().join("public");
    said("openssl", words!["pkey", "-in", key, "-pubout", "-out", &public]);
    for name in [SUMS].iter().chain(&SIGNATURES) {
        fs::copy(dist.join(name), folder.path().join(name)).unwrap();
    }
    let file = folder.path().join(SUMS);
    assert!(is_genuine(&file, &public));
    assert!(is_genuine_for_cosign(&file, &public));
}

/// Signs a copy of the list, and has it verified as it is, with another key, and after a change.
fn assert_is_told_apart(is_genuine: impl Fn(&Path, &Path) -> bool) {
    let Some(dist) = dist() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(SUMS);
    fs::copy(dist.join(SUMS), &file).unwrap();
    let [private, public] = key(folder.path(), "ours", "P-256");
    let [_, others] = key(folder.path(), "others", "P-256");
    said(repository().join(".ci/release/sign"), words![&private, &file]);
    assert!(is_genuine(&file, &public));
    assert!(!is_genuine(&file, &others));
    let changed = fs::read_to_string(&file).unwrap().replacen('0', "1", 1);
    fs::write(&file, changed).unwrap();
    assert!(!is_genuine(&file, &public));
}

#[test]
fn a_user_with_openssl_tells_a_signed_list_from_a_changed_one_and_from_one_that_another_signed() {
    if has("openssl") {
        assert_is_told_apart(is_genuine);
    }
}

#[test]
fn a_user_with_cosign_tells_a_signed_list_from_a_changed_one_and_from_one_that_another_signed() {
    if has("openssl") && has("go") {
        assert_is_told_apart(is_genuine_for_cosign);
    }
}

#[test]
fn a_key_that_users_could_not_check_with_is_refused_in_one_sentence() {
    if !has("openssl") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [other_curve, _] = key(folder.path(), "other-curve", "P-384");
    let none = folder.path().join("none");
    fs::write(&none, "not a key").unwrap();
    for (key, why) in [
        (other_curve, "is not one on the curve P-256"),
        (none, "is no private key that openssl reads"),
        (folder.path().join("missing"), "cannot be read"),
    ] {
        let output = output(repository().join(".ci/release/sign"), words![&key]);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(64), "{told}");
        assert!(told.contains(why) && told.lines().count() == 1, "{told}");
    }
}

#[test]
fn another_version_than_that_of_the_workspace_is_refused_in_one_sentence() {
    let output = output(repository().join(".ci/release/dist"), ["99.0.0"]);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64), "{told}");
    let expected = format!(
        "dist: VERSION is 99.0.0, but the version of the workspace in Cargo.toml is {VERSION}: \
         both have to be that of the release\n"
    );
    assert_eq!(told, expected);
}
