//! The authority of a cluster, the certificates and keys that it needs, and kubeconfig files.
//!
//! Clients use static tokens (`--token-auth-file`): there are certificates only where Kubernetes accepts
//! nothing else.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use serde_json::json;

use super::layout::{ADDRESS, API_SERVICE, NodeLayout, api_port};

/// The file that says which certificate the API server shows to webhooks.
pub(crate) const ADMISSION: &str = "admission.json";

/// Files that the control plane and the nodes share.
#[derive(Clone, Debug)]
pub(crate) struct Pki {
    directory: PathBuf,
}

impl Pki {
    /// Makes everything that a cluster with this many nodes needs.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(crate) fn create(directory: &Path, nodes: u8) -> anyhow::Result<Self> {
        fs::create_dir_all(directory)?;
        let pki = Self {
            directory: directory.to_owned(),
        };
        let authority = pki.authority()?;
        let names = [
            ADDRESS.to_string(),
            API_SERVICE.to_string(),
            "127.0.0.1".to_owned(),
            "localhost".to_owned(),
            "kubernetes".to_owned(),
            "kubernetes.default".to_owned(),
            "kubernetes.default.svc".to_owned(),
            "kubernetes.default.svc.cluster.local".to_owned(),
        ];
        let mut server = CertificateParams::new(names)?;
        server
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        pki.sign(&authority, "apiserver", server)?;
        // The API server shows this certificate to webhooks, and to kubelets, which ask it in turn whether
        // that is allowed.
        let mut client = CertificateParams::default();
        client
            .distinguished_name
            .push(DnType::OrganizationName, "system:masters");
        client
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        pki.sign(&authority, "apiserver-client", client)?;
        pki.write_admission()?;
        let accounts = KeyPair::generate()?;
        pki.write("accounts.key", &accounts.serialize_pem())?;
        pki.write("accounts.pub", &accounts.public_key_pem())?;
        pki.write_tokens(nodes)?;
        Ok(pki)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The path of a user's kubeconfig, which is valid on every host of the cluster.
    pub(crate) fn kubeconfig(&self, user: &str) -> PathBuf {
        self.path(&format!("{user}.kubeconfig"))
    }

    /// Writes the administrator's kubeconfig, for this machine and the control plane's namespace.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write_outside_kubeconfig(&self, to: &Path) -> anyhow::Result<()> {
        let tokens = fs::read_to_string(self.path("tokens.csv"))?;
        let token = tokens
            .lines()
            .find_map(|line| {
                let (token, rest) = line.split_once(',')?;
                rest.starts_with("admin,").then_some(token)
            })
            .context("the administrator has no token")?;
        write_private(to, &self.kubeconfig_text("127.0.0.1", "admin", token)?)
    }

    fn authority(&self) -> anyhow::Result<Issuer<'static, KeyPair>> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "lockkeeper test cluster");
        let key = KeyPair::generate()?;
        self.write("ca.crt", &params.self_signed(&key)?.pem())?;
        Ok(Issuer::new(params, key))
    }

    fn sign(
        &self,
        authority: &Issuer<'static, KeyPair>,
        name: &str,
        params: CertificateParams,
    ) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        self.write(&format!("{name}.crt"), &params.signed_by(&key, authority)?.pem())?;
        self.write(&format!("{name}.key"), &key.serialize_pem())
    }

    /// Writes the users that Kubernetes' own rules know by these names and groups, and a kubeconfig for each.
    fn write_tokens(&self, nodes: u8) -> anyhow::Result<()> {
        let mut users = vec![
            ("admin".to_owned(), "admin".to_owned(), "system:masters"),
            (
                "controller-manager".to_owned(),
                "system:kube-controller-manager".to_owned(),
                "",
            ),
            ("scheduler".to_owned(), "system:kube-scheduler".to_owned(), ""),
            ("proxy".to_owned(), "system:kube-proxy".to_owned(), ""),
            ("coredns".to_owned(), "system:coredns".to_owned(), ""),
        ];
        for node in NodeLayout::all(nodes) {
            users.push((
                node.name(),
                format!("system:node:{}", node.name()),
                "system:nodes",
            ));
        }
        let mut tokens = String::new();
        for (file, user, group) in users {
            let token = random_token()?;
            tokens.push_str(&format!("{token},{user},{user},\"{group}\"\n"));
            let text = self.kubeconfig_text(&ADDRESS.to_string(), &user, &token)?;
            write_private(&self.kubeconfig(&file), &text)?;
        }
        self.write("tokens.csv", &tokens)
    }

    /// Writes how the API server authenticates to webhooks (Kubernetes documentation, "Dynamic Admission
    /// Control", "Authenticate API servers").
    fn write_admission(&self) -> anyhow::Result<()> {
        let clients = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{"name": "*", "user": {
                "client-certificate": self.path("apiserver-client.crt"),
                "client-key": self.path("apiserver-client.key"),
            }}],
        });
        self.write("webhooks.kubeconfig", &clients.to_string())?;
        let plugin = |name: &str| {
            json!({"name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": self.path("webhooks.kubeconfig"),
            }})
        };
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [plugin("MutatingAdmissionWebhook"), plugin("ValidatingAdmissionWebhook")],
        });
        self.write(ADMISSION, &configuration.to_string())
    }

    fn kubeconfig_text(&self, address: &str, user: &str, token: &str) -> anyhow::Result<String> {
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lockkeeper", "cluster": {
                "server": format!("https://{address}:{}", api_port()),
                "certificate-authority": self.path("ca.crt"),
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "lockkeeper", "context": {"cluster": "lockkeeper", "user": user}}],
            "current-context": "lockkeeper",
        });
        Ok(serde_json::to_string_pretty(&config)?)
    }

    fn write(&self, name: &str, content: &str) -> anyhow::Result<()> {
        write_private(&self.path(name), content)
    }
}

fn write_private(path: &Path, content: &str) -> anyhow::Result<()> {
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(content.as_bytes())?;
    Ok(())
}

/// 128 random bits, as hexadecimal digits.
fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}
