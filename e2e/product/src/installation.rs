//! Lockkeeper as users install it: images from the Dockerfiles, charts by helm, and an ensemble that pods can
//! reach.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::cluster::{REGISTRY_INSIDE, kubernetes_networks};
use lockkeeper_testbed::{Cluster, Config, Ensemble, Unsupported};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::chart::{CHART, Helm, SYSTEM, WORKSPACE};
use crate::{binaries, zookeeper_image};

/// The name of the helm release.
const RELEASE: &str = "lockkeeper";
const CRDS: &str = "lockkeeper-crds";
/// Replicas of the operator, by the chart's default.
const REPLICAS: usize = 2;
/// A bound for the end of the operator, which takes its grace period at most.
const GONE: Duration = Duration::from_secs(90);
/// How long helm waits until everything is ready.
const WAIT: &str = "--timeout=3m";

/// A checkout to install from: it has the charts, and the images are made of what was built in it.
#[derive(Clone, Debug)]
pub struct Source {
    checkout: PathBuf,
    is_own: bool,
}

impl Source {
    /// The checkout that is tested.
    pub fn own() -> Self {
        Self {
            checkout: PathBuf::from(WORKSPACE),
            is_own: true,
        }
    }

    /// Another one, in which `make image-contexts` was run.
    pub fn built(checkout: PathBuf) -> Self {
        Self {
            checkout,
            is_own: false,
        }
    }

    fn image_context(&self, crate_folder: &str) -> anyhow::Result<PathBuf> {
        if self.is_own {
            binaries::image_context(crate_folder)
        } else {
            Ok(self.checkout.join("target/images").join(crate_folder))
        }
    }
}

/// The operator, in a cluster of this machine, and its ensemble.
#[derive(Debug)]
pub struct Installation<'a> {
    cluster: &'a Cluster,
    ensemble: Ensemble,
    helm: Helm,
    /// With the images it began with.
    values: Value,
}

impl<'a> Installation<'a> {
    /// Builds the images, starts an ensemble, installs both charts, and waits until the operator serves. It
    /// upgrades an earlier installation in the cluster.
    ///
    /// # Errors
    /// When something does not build or start; [`Unsupported`] in a cluster of the user's own, whose pods
    /// cannot reach the ensemble.
    pub fn start(cluster: &'a Cluster, config: Config) -> anyhow::Result<Self> {
        Self::start_from(cluster, config, &Source::own())
    }

    /// The same from another checkout.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_from(cluster: &'a Cluster, config: Config, source: &Source) -> anyhow::Result<Self> {
        let helm = Helm::of(cluster)?;
        let ensemble = Ensemble::start(config)?;
        ensemble
            .network()
            .can_cut()
            .and_then(|()| cluster.control_plane().map(drop))?;
        let networks = kubernetes_networks();
        let networks: Vec<_> = networks.iter().map(String::as_str).collect();
        ensemble
            .network()
            .join(cluster.control_plane()?, &networks)
            .context("pods cannot be brought to the ensemble")?;
        let mut values = push_images(cluster, source)?;
        values["zookeeper"] = json!({
            "connect": ensemble.connect_string(),
            "tickTime": format!("{}ms", ensemble.config().tick.as_millis()),
        });
        values["registry"] = json!({ "plainHttp": [REGISTRY_INSIDE] });
        values["logFormat"] = json!("text");
        let installation = Self {
            cluster,
            ensemble,
            helm,
            values,
        };
        installation.install_from(&source.checkout, &json!({}))?;
        Ok(installation)
    }

    /// Installs both charts, or upgrades what is there, with `more` values, and waits until all is ready.
    ///
    /// # Errors
    /// When helm fails, or something does not become ready, with helm's message.
    pub fn install(&self, more: &Value) -> anyhow::Result<()> {
        self.install_from(Path::new(WORKSPACE), more)
    }

    /// The same from another checkout's charts.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn install_from(&self, checkout: &Path, more: &Value) -> anyhow::Result<()> {
        self.install_resource(checkout)?;
        self.upgrade(checkout, &["--install"], &[&self.values, more])
    }

    fn install_resource(&self, checkout: &Path) -> anyhow::Result<()> {
        let (chart, system) = (chart(checkout, CRDS), format!("--namespace={SYSTEM}"));
        self.helm(&[
            "upgrade",
            "--install",
            CRDS,
            &chart,
            &system,
            "--create-namespace",
        ])
        .map(drop)
    }

    fn upgrade(&self, checkout: &Path, how: &[&str], values: &[&Value]) -> anyhow::Result<()> {
        let (chart, system) = (chart(checkout, RELEASE), format!("--namespace={SYSTEM}"));
        // The files are there until helm has read them.
        let files = values.iter().map(|values| -> anyhow::Result<_> {
            let file = NamedTempFile::new()?;
            fs::write(file.path(), values.to_string())?;
            Ok(file)
        });
        let files = files.collect::<anyhow::Result<Vec<_>>>()?;
        let files = files
            .iter()
            .map(|file| format!("--values={}", file.path().display()));
        let files: Vec<_> = files.collect();
        let mut words = vec!["upgrade", RELEASE, &chart, &system, "--wait", WAIT];
        words.extend(how);
        words.extend(files.iter().map(String::as_str));
        self.helm(&words).with_context(|| self.story())?;
        self.wait_for_operators()
    }

    /// Goes back to a revision of the operator's chart (`helm rollback`), and waits until all is ready.
    ///
    /// # Errors
    /// As [`Self::install`].
    pub fn roll_back(&self, revision: &str) -> anyhow::Result<()> {
        let system = format!("--namespace={SYSTEM}");
        self.helm(&["rollback", RELEASE, revision, &system, "--wait", WAIT])
            .with_context(|| self.story())?;
        self.wait_for_operators()
    }

    /// The newest revision of the operator's chart (`helm history`).
    ///
    /// # Errors
    /// When helm fails, or there is none.
    pub fn revision(&self) -> anyhow::Result<String> {
        let system = format!("--namespace={SYSTEM}");
        let history = self.helm(&["history", RELEASE, &system, "--max=1", "--output=json"])?;
        let history: Value = serde_json::from_str(&history)?;
        let revision = history[0]["revision"].as_u64();
        Ok(revision.context("helm knows of no revision")?.to_string())
    }

    /// Waits for the end of former replicas: they would still answer with the former settings.
    fn wait_for_operators(&self) -> anyhow::Result<()> {
        self.cluster
            .wait_for(GONE, &operators("--output=name"), |names| {
                names.lines().count() == REPLICAS
            })
            .map(drop)
    }

    /// Upgrades to the charts and images of a checkout as docs/lifecycle.md says. Images here have tags of their own, which have to
    /// be set anew.
    ///
    /// # Errors
    /// As [`Self::install`], and when an image cannot be made.
    pub fn change_to(&self, source: &Source) -> anyhow::Result<()> {
        let images = push_images(self.cluster, source)?;
        self.install_resource(&source.checkout)?;
        self.upgrade(&source.checkout, &["--reset-then-reuse-values"], &[&images])
    }

    /// Checks that no two replicas of the operator are on one node.
    ///
    /// # Panics
    /// When two are.
    pub fn assert_spread(&self) {
        let nodes = self
            .cluster
            .kubectl(&operators("--output=jsonpath={.items[*].spec.nodeName}"));
        let nodes = nodes.expect("the nodes of the operator");
        let mut each: Vec<_> = nodes.split_whitespace().collect();
        each.sort_unstable();
        each.dedup();
        assert_eq!(
            each.len(),
            REPLICAS,
            "the replicas of the operator are on {nodes}"
        );
    }

    /// Pushes an image with ZooKeeper's server. Returns the name by which pods use it.
    ///
    /// # Errors
    /// As [`zookeeper_image::push`].
    pub fn push_zookeeper(&self) -> anyhow::Result<String> {
        let tag = BootInstant::now().as_nanos();
        zookeeper_image::push(self.cluster, &format!("lockkeeper/zookeeper:{tag}"))
    }

    /// Runs helm, and returns its output.
    ///
    /// # Errors
    /// When it fails, with its message.
    pub fn helm(&self, arguments: &[&str]) -> anyhow::Result<String> {
        let said = self.helm.run(arguments)?;
        ensure!(
            said.is_done,
            "helm {} failed: {}",
            arguments.join(" "),
            said.words.trim()
        );
        Ok(said.output)
    }

    /// Upgrades the operator's chart with these words after the values that it has (`helm upgrade
    /// --reset-then-reuse-values`), as the pages tell an administrator to.
    ///
    /// # Errors
    /// As [`Self::helm`].
    pub fn upgrade_with(&self, words: &[&str]) -> anyhow::Result<String> {
        let system = format!("--namespace={SYSTEM}");
        let upgrade = ["upgrade", RELEASE, CHART, &system, "--reset-then-reuse-values"];
        self.helm(&[&upgrade[..], words].concat())
    }

    pub fn cluster(&self) -> &'a Cluster {
        self.cluster
    }

    pub fn ensemble(&self) -> &Ensemble {
        &self.ensemble
    }

    /// Drops every packet between the pods of a node, counted from 1, and the ensemble.
    ///
    /// # Errors
    /// When connections cannot be cut here.
    pub fn cut_from_ensemble(&self, node: u8) -> Result<(), Unsupported> {
        let networks = self.cluster.node(node)?.networks();
        networks
            .iter()
            .try_for_each(|network| self.ensemble.network().cut_network(network))
    }

    /// Reverts [`Self::cut_from_ensemble`].
    ///
    /// # Errors
    /// When it was not cut.
    pub fn heal_to_ensemble(&self, node: u8) -> Result<(), Unsupported> {
        let networks = self.cluster.node(node)?.networks();
        networks
            .iter()
            .try_for_each(|network| self.ensemble.network().heal_network(network))
    }

    /// The state of the operator, for a failing test.
    pub fn story(&self) -> String {
        let ask = |words: &[&str]| {
            let question: Vec<_> = words.iter().copied().chain(["--namespace", SYSTEM]).collect();
            self.cluster
                .kubectl(&question)
                .unwrap_or_else(|error| format!("{error:#}"))
        };
        let ours = "--selector=app.kubernetes.io/name=lockkeeper";
        [
            ask(&["get", "pods,endpointslices", "--output=wide"]),
            ask(&["get", "events", "--sort-by=.lastTimestamp"]),
            ask(&["logs", ours, "--prefix", "--tail=40"]),
            ask(&["logs", ours, "--prefix", "--tail=20", "--previous"]),
        ]
        .join("\n")
    }
}

/// A question to kubectl about the operator's pods.
pub fn operators(output: &str) -> [&str; 6] {
    [
        "get",
        "pods",
        "--namespace",
        SYSTEM,
        "--selector=app.kubernetes.io/component=operator",
        output,
    ]
}

/// A chart of a checkout.
fn chart(checkout: &Path, name: &str) -> String {
    checkout.join("charts").join(name).display().to_string()
}

/// Pushes the images of a checkout. Returns the values of the chart that name them.
fn push_images(cluster: &Cluster, source: &Source) -> anyhow::Result<Value> {
    // Nodes do not look for a newer image of the same name, and the cluster may be an older one.
    let tag = BootInstant::now().as_nanos();
    let image = |crate_folder: &str, name: &str| {
        let context = source.image_context(crate_folder)?;
        cluster.push_image(&format!("lockkeeper/{name}:{tag}"), &context, Some("prebuilt"))
    };
    let sidecar = image("sidecar", "lockkeeper")?;
    let operator = image("operator", "lockkeeper-operator")?;
    Ok(json!({ "image": parts(&operator), "sidecar": { "image": parts(&sidecar) } }))
}

/// An image as values of the chart.
fn parts(image: &str) -> Value {
    let (repository, tag) = image.rsplit_once(':').expect("an image of ours has a tag");
    json!({ "repository": repository, "tag": tag })
}
