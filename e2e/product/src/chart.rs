//! The charts, as the real helm renders them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lockkeeper_testbed::cluster::build::Programs;
use lockkeeper_testbed::{Cluster, Process, Unsupported};

/// The namespace of the operator.
pub const SYSTEM: &str = "lockkeeper-system";
/// The checkout that is tested.
pub const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
pub const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../charts/lockkeeper");
pub const CRD: &str = include_str!("../../../crds/distributedlock.yaml");
/// An argument with which helm can render the chart without a cluster: it names the Secret with the
/// operator's identity.
pub const GIVEN: &str = "--set=zookeeper.connect=zookeeper:2181,zookeeper.authSecret=given";

#[derive(Clone, Debug)]
pub struct Helm {
    program: PathBuf,
    kubeconfig: PathBuf,
}

/// The result of a program.
#[derive(Clone, Debug)]
pub struct Said {
    /// Whether it succeeded.
    pub is_done: bool,
    /// Its standard output.
    pub output: String,
    /// Warnings and errors.
    pub words: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            is_done: output.status.success(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            words: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Helm {
    /// A helm without access to a cluster.
    ///
    /// # Errors
    /// When helm has not been built.
    pub fn alone() -> Result<Self, Unsupported> {
        Ok(Self {
            program: Programs::found()?.path("helm"),
            kubeconfig: PathBuf::from("/dev/null"),
        })
    }

    /// A helm for a cluster.
    ///
    /// # Errors
    /// When helm has not been built, or it is a cluster of the user's own.
    pub fn of(cluster: &Cluster) -> Result<Self, Unsupported> {
        Ok(Self {
            program: cluster.program("helm")?,
            kubeconfig: cluster.kubeconfig().to_owned(),
        })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Runs it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, arguments: &[&str]) -> anyhow::Result<Said> {
        let mut command = Command::new(&self.program);
        Process::piped(&mut command)
            .args(arguments)
            // It ends before collecting garbage would pay.
            .env("GOGC", "off")
            .env("KUBECONFIG", &self.kubeconfig);
        Ok(Said::from(Process::spawn("helm", command)?.output()?))
    }

    /// Templates of the operator's chart with these values, which may be lists with commas, rendered without
    /// access to a cluster.
    ///
    /// # Panics
    /// When they cannot be rendered, with helm's message.
    pub fn render(&self, parts: &[&str], values: &[&str]) -> String {
        let system = format!("--namespace={SYSTEM}");
        let parts = parts
            .iter()
            .map(|part| format!("--show-only=templates/{part}.yaml"));
        let values = values.iter().map(|value| format!("--set={value}"));
        let more: Vec<_> = parts.chain(values).collect();
        let mut arguments = vec!["template", "lockkeeper", CHART, &system, GIVEN];
        arguments.extend(more.iter().map(String::as_str));
        let said = self.run(&arguments).unwrap();
        assert!(said.is_done, "{}", said.words);
        said.output
    }
}
