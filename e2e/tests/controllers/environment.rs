//! The environment of these tests: an ensemble of three servers, and one replica of the operator. The API server
//! does not call its webhooks.

use lockkeeper_operator::identity::Identity;
use lockkeeper_product::beside::{Environment, IDENTITY, Tenant};
use lockkeeper_product::chart::Helm;
use lockkeeper_testbed::certificates::{Authority, write};
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::shared::{Shared, Visit};
use lockkeeper_testbed::{Cluster, Config, Ensemble};

static ENVIRONMENT: Shared<Environment> = Shared::new();

/// The environment, together with other tests. `None` where no cluster can run.
#[allow(dead_code, reason = "benchmarks want it alone")]
pub async fn shared() -> Option<Visit<Environment>> {
    ENVIRONMENT.together(start).await
}

/// The environment without other tests: for a test that breaks it for a while.
pub async fn alone() -> Option<Visit<Environment>> {
    ENVIRONMENT.alone(start).await
}

async fn start() -> Option<Environment> {
    let cluster = Cluster::shared()?;
    let ensemble = Ensemble::start(Config {
        loopback: true,
        ..Config::default()
    })
    .expect("the servers start");
    let helm = Helm::of(cluster).unwrap();
    // The rights that the chart gives the operator, with a given certificate.
    let rights = helm.render(
        &["serviceaccount", "rbac", "webhook-rbac", "policy-operator"],
        &[
            "webhook.certificates=certManager",
            "zookeeper.otherEnsembles.hosts={zk.example.com}",
            "trustOutOfServiceTaint=true",
        ],
    );
    let folder = ensemble.directory().join("certificates");
    std::fs::create_dir(&folder).unwrap();
    let certificate = Authority::new("webhook").sign("webhook", &["localhost".to_owned()]);
    write(&folder, "tls.crt", &certificate.chain);
    write(&folder, "tls.key", &certificate.key);
    let options = ["--webhook-certificates", folder.to_str().unwrap()].map(str::to_owned);
    let (host, connect) = (ensemble.observer().clone(), ensemble.connect_string());
    let environment =
        Environment::without_operators(cluster, ensemble, host, connect, options.to_vec(), &rights);
    environment.put_operator(environment.operator("operator-0", &[]).await);
    Some(environment)
}

/// The operator's identity in the ensemble, as in the chart.
pub fn operator_identity() -> Identity {
    Identity::parse(IDENTITY).unwrap()
}

/// The identities of a namespace, as its pods read them: the one in use first.
pub async fn identities(tenant: &Tenant) -> Vec<Identity> {
    eventually("the Secret of the namespace", async || {
        Identity::parse_lines(&tenant.identities().await?).ok()
    })
    .await
}
