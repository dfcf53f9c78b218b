//! A cluster, an ensemble, and operators beside them.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use lockkeeper_lock::zookeeper::{Credentials, Onlooker, ZooKeeper};
use lockkeeper_testbed::eventually::BOUND;
use lockkeeper_testbed::shared::Story;
use lockkeeper_testbed::{Cluster, Ensemble, Host};
use serde_json::{Value, json};

use super::account::{client, kubeconfig_of};
use super::{IDENTITY, Launch, Operator, Pages, Tenant};
use crate::chart::{CRD, SYSTEM};

/// A cluster with the chart's rights in it, an ensemble of its own, and operators.
#[derive(Debug)]
pub struct Environment {
    // Ended before the ensemble.
    operators: Mutex<Vec<Operator>>,
    pub cluster: &'static Cluster,
    pub ensemble: Ensemble,
    /// The host of the operators.
    pub host: Host,
    connect: String,
    options: Vec<String>,
    kubeconfig: PathBuf,
    auth: PathBuf,
}

impl Environment {
    /// Applies parts of the chart, with the rights of the ServiceAccount `lockkeeper` among them, and the
    /// resource's definition. Operators run on `host`, reach the ensemble at `connect`, and get these
    /// options. This starts none yet.
    ///
    /// # Panics
    /// When the API server refuses something.
    pub fn without_operators(
        cluster: &'static Cluster,
        ensemble: Ensemble,
        host: Host,
        connect: String,
        options: Vec<String>,
        chart: &str,
    ) -> Self {
        // As the operator's `main` does. It fails if an earlier environment has done it already.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": SYSTEM } });
        cluster
            .apply(&[CRD, &namespace.to_string(), chart].join("\n---\n"))
            .unwrap();
        let auth = ensemble.directory().join("auth");
        fs::write(&auth, format!("digest:{IDENTITY}")).unwrap();
        Self {
            operators: Mutex::default(),
            kubeconfig: kubeconfig_of(cluster, ensemble.directory(), "lockkeeper"),
            cluster,
            ensemble,
            host,
            connect,
            options,
            auth,
        }
    }

    /// Starts another replica with more options, and waits until it is ready.
    pub async fn operator(&self, name: &str, options: &[&str]) -> Operator {
        self.operator_by(name, &self.kubeconfig, &self.connect, options)
            .await
    }

    /// The same with another kubeconfig and another connect string.
    pub async fn operator_by(
        &self,
        name: &str,
        kubeconfig: &Path,
        connect: &str,
        options: &[&str],
    ) -> Operator {
        let common = [
            ["--connect", connect],
            ["--namespace", SYSTEM],
            ["--tick-time", "1s"],
            ["--session-timeout", "8s"],
        ];
        // An option of a test counts in place of the common one.
        let common = common.into_iter().filter(|[flag, _]| !options.contains(flag));
        let common: Vec<_> = common.flatten().collect();
        let of_all: Vec<_> = self.options.iter().map(String::as_str).collect();
        Operator::start(&Launch {
            name,
            host: &self.host,
            directory: self.ensemble.directory(),
            kubeconfig,
            auth: &self.auth,
            options: &[&common[..], &of_all[..], options].concat(),
            memory: None,
        })
        .await
    }

    /// The operators of all tests, in the order in which they were added.
    pub fn operators(&self) -> MutexGuard<'_, Vec<Operator>> {
        self.operators.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The metrics and probes of each of them.
    pub fn pages(&self) -> Vec<Pages> {
        let operators = self.operators();
        operators.iter().map(|operator| operator.pages.clone()).collect()
    }

    /// Removes the newest replica from the list, and returns it.
    ///
    /// # Panics
    /// When there is none.
    pub fn take_operator(&self) -> Operator {
        self.operators().pop().expect("there is one")
    }

    /// Adds a replica for all tests.
    pub fn put_operator(&self, operator: Operator) {
        self.operators().push(operator);
    }

    /// A client with all rights, for the runtime of the caller.
    pub async fn client(&self) -> Client {
        client(self.cluster.kubeconfig()).await
    }

    /// The operator's kubeconfig: the rights of the chart.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A connection to the ensemble with the operator's rights, from this process.
    ///
    /// # Panics
    /// When there is none in time.
    pub async fn connection(&self) -> Onlooker {
        /// Longer than any test uses one connection.
        const SESSION: Duration = Duration::from_secs(20);
        ZooKeeper::new(self.ensemble.connect_string().parse().unwrap(), SESSION)
            .with_credentials(Credentials::Digest(IDENTITY.to_owned()))
            .onlooker(0, BOUND)
            .await
            .unwrap()
    }

    /// A namespace for one test.
    pub async fn namespace(&self, name: &str) -> Tenant {
        self.labelled(name, json!({})).await
    }

    /// The same with labels.
    pub async fn labelled(&self, name: &str, labels: Value) -> Tenant {
        Tenant::new(self.client().await, name, labels).await
    }
}

impl Story for Environment {
    fn story(&self) -> String {
        let of_one =
            |operator: &Operator| format!("{} at {}:\n{}", operator.name, operator.webhook, operator.log());
        let stories: Vec<_> = self.operators().iter().map(of_one).collect();
        stories.join("\n")
    }
}
