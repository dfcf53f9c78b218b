//! Archives, packages and charts.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{MACHINES, PROGRAMS, VERSION, dist, extract, has, machine_of, said, this_machine, words};

/// What `lockkeeper --version` and the others print.
fn assert_runs(program: &Path) {
    let name = program.file_name().unwrap().to_str().unwrap();
    let name = name.split('_').next().unwrap();
    let told = said(program, ["--version"]);
    assert!(told.starts_with(&format!("{name} {VERSION} (commit ")), "{told}");
}

/// Whether an executable file (ELF, 64 bits) names another program that has to load it.
fn has_loader(program: &Path) -> bool {
    /// `p_type` of the part that names it.
    const PT_INTERP: usize = 3;
    let bytes = fs::read(program).unwrap();
    let number = |at: usize, length: usize| {
        let digits = bytes[at..at + length].iter().rev();
        digits.fold(0, |sum: usize, byte| sum << 8 | usize::from(*byte))
    };
    // `e_phoff`, `e_phentsize` and `e_phnum`: where the headers of the parts are.
    let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    assert!(count > 0, "{}", program.display());
    (0..count).any(|header| number(first + header * size, 4) == PT_INTERP)
}

/// Checks that a folder has the units of the repository, unchanged, and nothing else.
fn assert_has_units(folder: &Path) {
    let units = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let files = entries.map(|entry| entry.unwrap().path());
        let units = files.map(|file| {
            (
                file.file_name().unwrap().to_owned(),
                fs::read_to_string(file).unwrap(),
            )
        });
        units.collect::<BTreeMap<_, _>>()
    };
    let expected = units(&crate::repository().join("sidecar/systemd"));
    assert!(expected.len() > 2, "{expected:?}");
    assert_eq!(units(folder), expected);
}

/// The text of a compressed man page.
fn page(file: &Path) -> String {
    said("gzip", words!["--decompress", "--stdout", file])
}

#[test]
fn a_binary_of_each_machine_is_static_and_that_of_this_machine_runs() {
    let Some(dist) = dist() else { return };
    for machine in MACHINES {
        for program in PROGRAMS {
            let binary = dist.join(format!("{program}_{VERSION}_linux_{machine}"));
            assert_eq!(machine_of(&binary), machine);
            // PT_INTERP: the program that has to load this one, with its libraries.
            assert!(!has_loader(&binary), "{}", binary.display());
            if machine == this_machine() {
                assert_runs(&binary);
            }
        }
    }
}

#[test]
fn no_binary_names_a_folder_of_the_machine_that_built_it() {
    let Some(dist) = dist() else { return };
    let repository = crate::repository().canonicalize().unwrap();
    let mut folders = vec![repository];
    folders.extend(
        ["CARGO_HOME", "CARGO_TARGET_DIR", "HOME"]
            .map(|name| PathBuf::from(std::env::var_os(name).unwrap_or_default())),
    );
    // `/root` and `/` are in texts that mean something else.
    folders.retain(|folder| folder.components().count() > 2);
    for machine in MACHINES {
        for program in PROGRAMS {
            let binary = fs::read(dist.join(format!("{program}_{VERSION}_linux_{machine}"))).unwrap();
            for folder in &folders {
                let folder = folder.to_str().unwrap();
                let is_named = binary.windows(folder.len()).any(|part| part == folder.as_bytes());
                assert!(!is_named, "{program} for {machine} names {folder}");
            }
        }
    }
}

#[test]
fn an_archive_has_the_program_its_man_pages_its_completions_its_units_the_licence_and_a_readme() {
    let Some(dist) = dist() else { return };
    for machine in MACHINES {
        for program in PROGRAMS {
            let name = format!("{program}_{VERSION}_linux_{machine}");
            let folder = tempfile::tempdir().unwrap();
            let archive = dist.join(format!("{name}.tar.gz"));
            extract(&archive, folder.path());
            let folder = folder.path().join(&name);
            let binary = folder.join("bin").join(program);
            assert_eq!(machine_of(&binary), machine);
            if machine == this_machine() {
                assert_runs(&binary);
            }
            let page = fs::read_to_string(folder.join(format!("share/man/man1/{program}.1"))).unwrap();
            assert!(page.contains(".TH"), "{page}");
            let readme = fs::read_to_string(folder.join("README.md")).unwrap();
            assert!(readme.contains(&format!("# {program} {VERSION}")), "{readme}");
            assert!(folder.join("LICENSE").is_file());
            let is_completed = folder
                .join("share/bash-completion/completions/lockkeeper")
                .is_file();
            assert_eq!(is_completed, program == "lockkeeper", "{name}");
            let units = folder.join("lib/systemd/system");
            assert_eq!(units.exists(), program == "lockkeeper", "{name}");
            if units.exists() {
                assert_has_units(&units);
            }
        }
    }
}

#[test]
fn the_package_for_debian_installs_a_program_that_runs_its_man_pages_and_its_units() {
    let Some(dist) = dist() else { return };
    if !has("dpkg") {
        return;
    }
    let package = dist.join(format!("lockkeeper_{VERSION}_{}.deb", this_machine()));
    let root = tempfile::tempdir().unwrap();
    let database = root.path().join("var/lib/dpkg");
    for folder in ["info", "updates"] {
        fs::create_dir_all(database.join(folder)).unwrap();
    }
    fs::write(database.join("status"), "").unwrap();
    let mut at = std::ffi::OsString::from("--root=");
    at.push(root.path());
    said("dpkg", words![&at, "--force-not-root", "--install", package]);

    assert_runs(&root.path().join("usr/bin/lockkeeper"));
    let pages = root.path().join("usr/share/man/man1");
    assert!(page(&pages.join("lockkeeper.1.gz")).contains("lockkeeper\\-run(1)"));
    assert!(page(&pages.join("lockkeeper-run.1.gz")).contains("lockkeeper run"));
    assert!(!pages.join("lockkeeper-operator.1.gz").exists());
    assert_has_units(&root.path().join("usr/lib/systemd/system"));
    assert!(root.path().join("etc/lockkeeper").is_dir());
    let listed = said("dpkg", words![&at, "--listfiles", "lockkeeper"]);
    for file in [
        "/usr/share/bash-completion/completions/lockkeeper",
        "/usr/share/zsh/vendor-completions/_lockkeeper",
        "/usr/share/fish/vendor_completions.d/lockkeeper.fish",
        "/usr/share/doc/lockkeeper/copyright",
    ] {
        assert!(listed.lines().any(|line| line == file), "{file}: {listed}");
    }

    said("dpkg", words![&at, "--force-not-root", "--purge", "lockkeeper"]);
    assert!(!root.path().join("usr/bin/lockkeeper").exists());
}

#[test]
fn a_package_for_debian_has_the_program_of_the_machine_that_it_names() {
    let Some(dist) = dist() else { return };
    if !has("dpkg-deb") {
        return;
    }
    for machine in MACHINES {
        let package = dist.join(format!("lockkeeper_{VERSION}_{machine}.deb"));
        let fields = ["Package", "Version", "Architecture", "Depends"];
        let told = said(
            "dpkg-deb",
            words!["--field", &package]
                .into_iter()
                .chain(fields.map(Into::into)),
        );
        let expected = format!("Package: lockkeeper\nVersion: {VERSION}\nArchitecture: {machine}\n");
        assert_eq!(told, expected);
        let folder = tempfile::tempdir().unwrap();
        said("dpkg-deb", words!["--extract", package, folder.path()]);
        assert_eq!(machine_of(&folder.path().join("usr/bin/lockkeeper")), machine);
    }
}

#[test]
fn the_package_for_red_hat_installs_a_program_that_runs_its_man_pages_and_its_units() {
    let Some(dist) = dist() else { return };
    if !has("rpm") {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("rpm installs into another root only as root");
    }
    let package = dist.join(format!("lockkeeper-{VERSION}-1.{}.rpm", std::env::consts::ARCH));
    let root = tempfile::tempdir().unwrap();
    // Debian's rpm takes no package otherwise, since dpkg is what manages Debian.
    let arguments = ["--force-debian", "--nodeps", "--install"];
    let at = words!["--root", root.path()];
    said(
        "rpm",
        at.iter()
            .cloned()
            .chain(arguments.map(Into::into))
            .chain([package.into()]),
    );
    assert_runs(&root.path().join("usr/bin/lockkeeper"));
    let pages = root.path().join("usr/share/man/man1");
    assert!(page(&pages.join("lockkeeper-run.1.gz")).contains("lockkeeper run"));
    assert_has_units(&root.path().join("usr/lib/systemd/system"));
    assert!(root.path().join("etc/lockkeeper").is_dir());
    assert!(
        root.path()
            .join("usr/share/zsh/site-functions/_lockkeeper")
            .is_file()
    );
}

#[test]
fn a_package_for_red_hat_is_whole_names_its_machine_and_says_nothing_of_the_one_that_built_it() {
    let Some(dist) = dist() else { return };
    if !has("rpm") {
        return;
    }
    for machine in ["x86_64", "aarch64"] {
        let package = dist.join(format!("lockkeeper-{VERSION}-1.{machine}.rpm"));
        said("rpm", words!["--checksig", "--nosignature", &package]);
        let format = "%{NAME} %{VERSION} %{ARCH} %{LICENSE} %{BUILDHOST}";
        let told = said(
            "rpm",
            words!["--query", "--package", "--queryformat", format, package],
        );
        assert_eq!(
            told,
            format!("lockkeeper {VERSION} {machine} Apache-2.0 localhost")
        );
    }
}

#[test]
fn a_chart_has_the_version_of_the_release() {
    let Some(dist) = dist() else { return };
    for chart in ["lockkeeper", "lockkeeper-crds"] {
        let package = dist.join(format!("{chart}-{VERSION}.tgz"));
        let described = format!("{chart}/Chart.yaml");
        let text = said(
            "tar",
            words!["--extract", "--to-stdout", "--file", &package, described],
        );
        for line in [format!("version: {VERSION}"), format!("name: {chart}")] {
            assert!(text.lines().any(|told| told == line), "{text}");
        }
        let listed = said("tar", words!["--list", "--file", package]);
        assert!(listed.contains(&format!("{chart}/templates/")), "{listed}");
    }
}

#[test]
fn a_bill_of_materials_names_the_program_and_what_is_in_it_and_no_folder() {
    let Some(dist) = dist() else { return };
    for machine in MACHINES {
        for program in PROGRAMS {
            let file = dist.join(format!("{program}_{VERSION}_linux_{machine}.cdx.json"));
            let text = fs::read_to_string(&file).unwrap();
            let bill: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(bill["bomFormat"], "CycloneDX");
            assert_eq!(bill["metadata"]["component"]["name"], program);
            let parts = bill["components"].as_array().unwrap();
            let has = |name: &str| parts.iter().any(|part| part["name"] == name);
            assert!(has("tokio") && has("rustls"), "{}", file.display());
            let folder = crate::repository().canonicalize().unwrap();
            assert!(!text.contains(folder.to_str().unwrap()), "{}", file.display());
        }
    }
}
