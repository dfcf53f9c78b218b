//! What `make dist` makes, as users take it: they verify it, install it and run it.
//!
//! `make test-dist` names the folder in `LOCKKEEPER_DIST`.

mod again;
mod arm64;
mod images;
mod installed;
mod krew;
mod packages;
mod published;
mod verified;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The version of the release, which is that of the workspace.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The two machines, as Debian, Go and images call them.
const MACHINES: [&str; 2] = ["amd64", "arm64"];

/// The programs of a release.
const PROGRAMS: [&str; 3] = ["lockkeeper", "lockkeeper-operator", "kubectl-lockkeeper"];

/// The folder of the repository.
fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder with the release; `None` if the test is skipped, since nothing names one.
#[track_caller]
fn dist() -> Option<PathBuf> {
    let dist = std::env::var_os("LOCKKEEPER_DIST").map(PathBuf::from);
    if dist.is_none() {
        lockkeeper_skip::skip("LOCKKEEPER_DIST names no folder with a release (`make test-dist` does)");
    }
    dist
}

/// Whether the machine has a program; if not, the test is skipped.
#[track_caller]
fn has(program: &str) -> bool {
    let found = std::env::split_paths(&path()).any(|folder| folder.join(program).is_file());
    if !found {
        lockkeeper_skip::skip(format_args!("{program} is not installed"));
    }
    found
}

/// The search path with the folders of administrators' programs, which dpkg asks for.
fn path() -> std::ffi::OsString {
    let mut path = std::env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin");
    path
}

/// What a program says, whether it succeeds or not.
fn output(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Output {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .env("PATH", path())
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    output.unwrap_or_else(|error| panic!("{}: {error}", program.display()))
}

/// The standard output of a program that has to succeed.
#[track_caller]
fn said(program: impl AsRef<OsStr>, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    let program = program.as_ref();
    let output = output(program, arguments);
    let (said, failed) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {said}{failed}", program.display());
    said.into_owned()
}

/// Words and paths as the arguments of a program.
macro_rules! words {
    ($($word:expr),* $(,)?) => {
        [$(std::ffi::OsString::from($word)),*]
    };
}
pub(crate) use words;

/// Unpacks an archive into a folder.
fn extract(archive: &Path, folder: &Path) {
    said(
        "tar",
        words!["--extract", "--file", archive, "--directory", folder],
    );
}

/// The machine that an executable file (ELF) is for.
fn machine_of(program: &Path) -> &'static str {
    let bytes = std::fs::read(program).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert_eq!(&bytes[..4], b"\x7fELF", "{}", program.display());
    // `e_machine`: EM_X86_64 and EM_AARCH64.
    match u16::from_le_bytes([bytes[18], bytes[19]]) {
        62 => "amd64",
        183 => "arm64",
        other => panic!("{}: a program for machine {other}", program.display()),
    }
}

/// This machine, if a release has programs for it.
fn this_machine() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => panic!("a release has no program for {other}"),
    }
}
