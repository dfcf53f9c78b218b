//! Kubeconfig files and clients.

use std::fs;
use std::path::{Path, PathBuf};

use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use lockkeeper_testbed::Cluster;
use serde_json::json;

use crate::chart::SYSTEM;

/// Writes the administrator's kubeconfig, with a token of a ServiceAccount of [`SYSTEM`] in place of the
/// administrator's. Returns its path.
///
/// # Panics
/// When there is no such account, or the file cannot be written.
pub fn kubeconfig_of(cluster: &Cluster, directory: &Path, account: &str) -> PathBuf {
    let system = format!("--namespace={SYSTEM}");
    let token = cluster
        .kubectl(&["create", "token", account, &system, "--duration=2h"])
        .unwrap();
    let mut kubeconfig = Kubeconfig::read_from(cluster.kubeconfig()).unwrap();
    for user in &mut kubeconfig.auth_infos {
        user.auth_info = Some(AuthInfo {
            token: Some(token.trim().to_owned().into()),
            ..AuthInfo::default()
        });
    }
    let path = directory.join("kubeconfig");
    fs::write(&path, serde_json::to_vec(&json!(kubeconfig)).unwrap()).unwrap();
    path
}

/// A client from a kubeconfig, for the runtime of the caller.
///
/// # Panics
/// When the file is no kubeconfig.
pub async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}
