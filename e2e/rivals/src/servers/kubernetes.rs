//! The API server of Kubernetes and its etcd, without anything else.

use std::process::Command;

use lockkeeper_testbed::cluster::build::Programs;

use super::farm::{Breed, Farm, Node};
use super::{Version, json_field, sum_of};

const TOKEN: &str = "rivals";
const ETCD: usize = 0;
const API: usize = 1;

struct Kubernetes;

pub(super) fn start() -> anyhow::Result<Farm> {
    Farm::start(Box::new(Kubernetes), 2)
}

impl Breed for Kubernetes {
    fn port(&self) -> u16 {
        6443
    }

    fn command(&self, nodes: &[Node], index: usize) -> anyhow::Result<Command> {
        let programs = Programs::built()?;
        let node = &nodes[index];
        let etcd = format!("http://{}:2379", nodes[ETCD].host.address());
        if index == ETCD {
            let mut command = programs.command("etcd");
            command
                .arg(format!("--data-dir={}", node.directory.join("data").display()))
                .args([
                    format!("--listen-client-urls={etcd}"),
                    format!("--advertise-client-urls={etcd}"),
                ]);
            return Ok(command);
        }
        let file = |name: &str| node.directory.join(name);
        std::fs::write(file("tokens"), format!("{TOKEN},rivals,rivals,system:masters\n"))?;
        let key = file("accounts.key");
        if !key.exists() {
            let made = Command::new("openssl")
                .args(["genrsa", "-out"])
                .arg(&key)
                .arg("2048")
                .output()?;
            anyhow::ensure!(
                made.status.success(),
                "openssl: {}",
                String::from_utf8_lossy(&made.stderr)
            );
        }
        let mut command = programs.command("kube-apiserver");
        command
            .arg(format!("--etcd-servers={etcd}"))
            .arg(format!("--bind-address={}", node.host.address()))
            .arg(format!("--advertise-address={}", node.host.address()))
            .arg(format!("--cert-dir={}", file("certificates").display()))
            .arg(format!("--token-auth-file={}", file("tokens").display()))
            .arg(format!("--service-account-key-file={}", key.display()))
            .arg(format!("--service-account-signing-key-file={}", key.display()))
            .args([
                "--service-account-issuer=https://rivals",
                "--authorization-mode=RBAC",
            ])
            .args(["--service-cluster-ip-range=10.96.0.0/16", "--secure-port=6443"]);
        Ok(command)
    }

    fn serves(&self, farm: &Farm, index: usize) -> bool {
        if index == API {
            // The namespace is made some time after the API server serves.
            return get(farm, "/api/v1/namespaces/default").is_some();
        }
        let mut command = curl();
        command.arg(format!("http://{}:2379/health", farm.nodes[ETCD].host.address()));
        farm.ask(command).is_some()
    }

    fn requests(&self, farm: &Farm) -> Option<f64> {
        sum_of(&get(farm, "/metrics")?, "apiserver_request_total")
    }

    fn versions(&self, farm: &Farm) -> Option<Vec<Version>> {
        let api = json_field(&get(farm, "/version")?, "gitVersion")?;
        let mut command = curl();
        command.arg(format!("http://{}:2379/version", farm.nodes[ETCD].host.address()));
        let etcd = json_field(&farm.ask(command)?, "etcdserver")?;
        Some(vec![
            ("Kubernetes", api.trim_start_matches('v').to_owned()),
            ("etcd", etcd),
        ])
    }

    fn leader(&self, _: &Farm) -> Option<usize> {
        Some(API)
    }

    fn addresses(&self, nodes: &[Node]) -> String {
        format!("https://{}:6443", nodes[API].host.address())
    }

    fn options(&self, nodes: &[Node]) -> Vec<String> {
        let file = nodes[API].directory.join("token");
        // A file that cannot be written shows when a driver reads it.
        let _ = std::fs::write(&file, TOKEN);
        vec!["--token-file".to_owned(), file.display().to_string()]
    }
}

fn curl() -> Command {
    let mut command = Command::new("curl");
    command.args(["--silent", "--fail", "--insecure", "--max-time", "1"]);
    command
}

/// What the API server answers.
fn get(farm: &Farm, path: &str) -> Option<String> {
    let mut command = curl();
    command.args(["-H", &format!("Authorization: Bearer {TOKEN}")]);
    command.arg(format!("https://{}:6443{path}", farm.nodes[API].host.address()));
    farm.ask(command)
}
