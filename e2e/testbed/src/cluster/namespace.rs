//! A Kubernetes namespace of one test.

use std::time::Duration;

use super::Cluster;

/// Generous: the machine may be busy.
const BOUND: Duration = Duration::from_secs(120);

/// A namespace. Drop deletes it with all that is in it, and does not wait.
#[derive(Debug)]
pub struct Namespace {
    cluster: &'static Cluster,
    name: String,
}

impl Namespace {
    /// Makes it, and waits for its ServiceAccount, without which the API server accepts no pod. First it
    /// deletes the namespace of a run that was killed.
    ///
    /// # Errors
    /// When the API server refuses it.
    pub fn new(cluster: &'static Cluster, name: &str) -> anyhow::Result<Self> {
        let bound = format!("--timeout={}s", BOUND.as_secs());
        cluster.kubectl(&["delete", "namespace", name, "--ignore-not-found", &bound])?;
        cluster.kubectl(&["create", "namespace", name])?;
        let namespace = Self {
            cluster,
            name: name.to_owned(),
        };
        namespace.wait_for(BOUND, &["get", "serviceaccount", "default"], |_| true)?;
        Ok(namespace)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `kubectl` in this namespace, and returns its output.
    ///
    /// # Errors
    /// As [`Cluster::kubectl`].
    pub fn kubectl(&self, words: &[&str]) -> anyhow::Result<String> {
        self.cluster.kubectl(&self.inside(words))
    }

    /// Runs `kubectl` in this namespace until its output satisfies a condition.
    ///
    /// # Errors
    /// As [`Cluster::wait_for`].
    pub fn wait_for(
        &self,
        bound: Duration,
        words: &[&str],
        pleases: impl Fn(&str) -> bool,
    ) -> anyhow::Result<String> {
        self.cluster.wait_for(bound, &self.inside(words), pleases)
    }

    fn inside<'a>(&'a self, words: &[&'a str]) -> Vec<&'a str> {
        [&["--namespace", &self.name], words].concat()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", &self.name, "--wait=false"];
        if let Err(error) = self.cluster.kubectl(&delete) {
            eprintln!("{error:#}");
        }
    }
}
