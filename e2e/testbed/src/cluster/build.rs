//! The programs of the cluster, built from their Go modules by the ordinary `go build`.
//!
//! `e2e/testbed/cluster` holds module files and a few lines of our own code. The modules come from the
//! Go module proxy, and Go checks them against `go.sum`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, bail, ensure};

use super::version;
use crate::clock::since_boot;
use crate::{Process, Unsupported, cache};

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/cluster");

/// Measured on two cores that had little else to do, from empty caches: 284 s, 120 s and 58 s; the
/// fourth 97 s beside other work.
const EXPECTED: &str = "the first time 8 to 10 minutes for all of them on two cores";

/// How much the heap of a part grows before Go collects garbage, in percent (package `runtime`; its default is 100). Tests
/// have few objects and few seconds, so the parts stay small, and collecting costs more than it brings.
const GARBAGE: &str = "400";

/// A folder of [`SOURCES`], with a `go.mod`.
struct Module {
    /// The folder's name; that of [`KUBERNETES`] may go on with the version.
    name: &'static str,
    /// Packages to build, and the names of the programs: packages of other modules, or our own few lines.
    tools: &'static [(&'static str, &'static str)],
}

const KUBERNETES: &str = "kubernetes";

const MODULES: [Module; 4] = [
    Module {
        name: KUBERNETES,
        tools: &[
            ("go.etcd.io/etcd/server/v3", "etcd"),
            ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
            (
                "k8s.io/kubernetes/cmd/kube-controller-manager",
                "kube-controller-manager",
            ),
            ("k8s.io/kubernetes/cmd/kube-scheduler", "kube-scheduler"),
            ("k8s.io/kubernetes/cmd/kubelet", "kubelet"),
            ("k8s.io/kubernetes/cmd/kube-proxy", "kube-proxy"),
            ("k8s.io/kubernetes/cmd/kubectl", "kubectl"),
        ],
    },
    Module {
        name: "containers",
        tools: &[
            ("github.com/containerd/containerd/v2/cmd/containerd", "containerd"),
            (
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "containerd-shim-runc-v2",
            ),
            ("github.com/containerd/containerd/v2/cmd/ctr", "ctr"),
            ("github.com/containernetworking/plugins/plugins/main/ptp", "ptp"),
            (
                "github.com/containernetworking/plugins/plugins/main/loopback",
                "loopback",
            ),
            (
                "github.com/containernetworking/plugins/plugins/meta/portmap",
                "portmap",
            ),
            (
                "github.com/containernetworking/plugins/plugins/ipam/host-local",
                "host-local",
            ),
            ("helm.sh/helm/v4/cmd/helm", "helm"),
        ],
    },
    Module {
        name: "extras",
        tools: &[
            ("./coredns", "coredns"),
            ("./registry", "registry"),
            ("./pause", "pause"),
        ],
    },
    Module {
        name: "certificates",
        tools: &[("./cert-manager", "cert-manager")],
    },
];

impl Module {
    fn sources(&self) -> PathBuf {
        let suffix = if self.name == KUBERNETES {
            version::suffix()
        } else {
            ""
        };
        Path::new(SOURCES).join(format!("{}{suffix}", self.name))
    }
}

/// The folders of the programs: one per module, under a key made from its files and Go's version.
#[derive(Clone, Debug)]
pub struct Programs {
    folders: Vec<PathBuf>,
}

impl Programs {
    /// Finds the programs, and builds those that are missing.
    ///
    /// # Errors
    /// When there is no Go, or it cannot build one of them.
    pub fn built() -> anyhow::Result<Self> {
        let cache = cache::directory("cluster")?;
        let total = MODULES.iter().map(|module| module.tools.len()).sum();
        let mut number = 0;
        let mut folders = Vec::new();
        for module in &MODULES {
            let sources = module.sources();
            folders.push(cache::entry(&cache, &key(module, &sources)?, |folder| {
                build(module, &sources, folder, number, total)
            })?);
            number += module.tools.len();
        }
        Ok(Self { folders })
    }

    /// Finds the programs if [`Programs::built`] was called before. It does not build them, because a test
    /// should not take ten minutes.
    ///
    /// # Errors
    /// When one is missing, or Go, whose version is needed, is not installed.
    pub fn found() -> Result<Self, Unsupported> {
        static FOUND: OnceLock<Programs> = OnceLock::new();
        if let Some(programs) = FOUND.get() {
            return Ok(programs.clone());
        }
        let find = |module: &Module| -> anyhow::Result<PathBuf> {
            let key = key(module, &module.sources())?;
            let folder = cache::found(&cache::directory("cluster")?, &key);
            folder.context("the programs of the cluster have not been built: `make cluster-build` does, in 8 to 10 minutes")
        };
        let folders: anyhow::Result<_> = MODULES.iter().map(find).collect();
        let folders = folders.map_err(|error| Unsupported::new(format!("{error:#}")))?;
        Ok(FOUND.get_or_init(|| Self { folders }).clone())
    }

    /// The path of a program.
    ///
    /// # Panics
    /// When the cluster has no such program.
    pub fn path(&self, tool: &str) -> PathBuf {
        let folder = MODULES
            .iter()
            .position(|module| module.tools.iter().any(|&(_, name)| name == tool))
            .unwrap_or_else(|| panic!("{tool} is not a program of the cluster"));
        self.folders[folder].join(tool)
    }

    /// A command that runs a program.
    pub fn command(&self, tool: &str) -> Command {
        let mut command = Command::new(self.path(tool));
        command.env("GOGC", GARBAGE);
        command
    }

    /// The folder with the network plug-ins and containerd's shim, for `PATH` and `bin_dirs`.
    pub fn containers(&self) -> PathBuf {
        self.path("containerd").with_file_name("")
    }
}

/// The folder of a Go module that is named in `folder` of `e2e/testbed/cluster`, for its other files.
///
/// # Errors
/// When it cannot be fetched.
pub fn module(folder: &str, name: &str) -> anyhow::Result<PathBuf> {
    let answer = go(
        &Path::new(SOURCES).join(folder),
        &["mod", "download", "-json", name],
    )?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    let folder = answer["Dir"].as_str().context("go does not say where it is")?;
    Ok(PathBuf::from(folder))
}

fn key(module: &Module, sources: &Path) -> anyhow::Result<String> {
    let go = go(sources, &["env", "GOVERSION", "GOARCH"])?;
    let own: Vec<_> = module
        .tools
        .iter()
        .filter_map(|(package, _)| package.strip_prefix("./"))
        .collect();
    let fingerprint = cache::fingerprint(sources, &own, &["go.mod", "go.sum"], &[&go])?;
    Ok(format!("{}-{fingerprint}", module.name))
}

/// Builds one program after the other; each uses what the earlier ones left in Go's own cache.
fn build(module: &Module, sources: &Path, folder: &Path, already: usize, total: usize) -> anyhow::Result<()> {
    fs::create_dir_all(folder)?;
    eprintln!("Building {} ({EXPECTED})", module.name);
    let began = since_boot();
    let flags = linker_flags(sources)?;
    for (index, (package, tool)) in module.tools.iter().enumerate() {
        let program = folder.join(tool);
        // From an interrupted build.
        if program.exists() {
            continue;
        }
        eprintln!("{} of {total}: {tool}", already + index + 1);
        let unfinished = folder.join(".unfinished");
        let unfinished_path = unfinished.to_str().context("the cache's path is not UTF-8")?;
        go(
            sources,
            &[
                "build",
                "-trimpath",
                "-ldflags",
                &flags,
                "-o",
                unfinished_path,
                package,
            ],
        )?;
        fs::rename(unfinished, program)?;
    }
    let took = (since_boot() - began).as_secs_f64();
    eprintln!("Building {} took {took:.0} s", module.name);
    Ok(())
}

/// The programs have no symbols. Kubernetes' programs get their version, as from its own build script.
fn linker_flags(sources: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(sources.join("go.mod"))?;
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))
        .map(|rest| rest.split_whitespace().next().unwrap_or_default());
    let Some(version) = version else {
        return Ok("-s -w".to_owned());
    };
    let mut parts = version.split('.');
    let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
        bail!(
            "{}/go.mod: {version} is no version of Kubernetes",
            sources.display()
        );
    };
    let variable = "-X k8s.io/component-base/version";
    Ok(format!(
        "-s -w {variable}.gitVersion=v{version} {variable}.gitMajor={major} {variable}.gitMinor={minor}"
    ))
}

/// Runs Go without cgo: the programs need no C compiler, and no C library where they run. Go dies with this
/// process, so that it does not write into the files of the next builder.
fn go(directory: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new("go");
    command
        .args(arguments)
        .current_dir(directory)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = Process::spawn("go", command)
        .and_then(Process::output)
        .context("cannot run go: the cluster's programs need Go 1.26 or newer (https://go.dev/dl)")?;
    ensure!(
        output.status.success(),
        "go {} failed in {}:\n{}",
        arguments[0],
        directory.display(),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubernetes_tells_the_version_that_its_module_file_names() {
        let flags = linker_flags(&Path::new(SOURCES).join("kubernetes")).unwrap();
        assert!(flags.contains(".gitVersion=v1."), "{flags}");
        assert_eq!(linker_flags(&Path::new(SOURCES).join("extras")).unwrap(), "-s -w");
    }

    #[test]
    fn every_module_file_names_the_programs_that_are_built_from_it() {
        for module in &MODULES {
            let sources = Path::new(SOURCES).join(module.name);
            let file = fs::read_to_string(sources.join("go.mod")).unwrap();
            for (package, _) in module.tools {
                match package.strip_prefix("./") {
                    Some(own) => assert!(sources.join(own).join("main.go").exists(), "{own}"),
                    None => assert!(
                        file.lines().any(|line| line.trim() == *package),
                        "{} is missing in {}/go.mod",
                        package,
                        module.name
                    ),
                }
            }
        }
    }
}
