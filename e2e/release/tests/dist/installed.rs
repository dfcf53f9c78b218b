//! From a cluster to a guarded Deployment, with nothing but what a release published.

use std::time::Duration;

use lockkeeper_documents::{replay, steps};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::{Shell, busybox_image, zookeeper_image};
use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::cluster::{Config, REGISTRY_INSIDE, registry_port_outside};

use crate::published::publish;
use crate::{VERSION, dist, has, repository, said, this_machine};

/// Its blocks `console` install a release.
const PAGE: &str = "docs/releasing.md";

/// For one command.
const BOUND: Duration = Duration::from_secs(360);

/// What a reader needs at most, before the one that shows the result.
const MOST_COMMANDS: usize = 5;

#[test]
fn five_commands_lead_from_a_cluster_to_a_deployment_of_which_one_pod_runs() {
    let Some(dist) = dist() else { return };
    if !has("skopeo") {
        return;
    }
    let Some(cluster) = Cluster::start_or_skip(&Config::for_tests()) else {
        return;
    };
    // This machine reaches the cluster's registry by another address than the nodes.
    let outside = format!("127.0.0.1:{}", registry_port_outside());
    publish(
        &dist,
        &format!("{outside}/tools"),
        &cluster.program("helm").unwrap(),
        &[],
    );
    zookeeper_image::push(&cluster, "library/zookeeper:3.9").unwrap();
    busybox_image::push(&cluster, "library/busybox:1.37").unwrap();

    let plugin = dist.join(format!("kubectl-lockkeeper_{VERSION}_linux_{}", this_machine()));
    let mut shell = Shell::on(&cluster, &plugin).unwrap();
    // The reader has no checkout, but one manifest.
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(
        repository().join("docs/examples/report.yaml"),
        folder.path().join("report.yaml"),
    )
    .unwrap();
    let before = [
        format!("cd {}", folder.path().display()),
        format!("registry={REGISTRY_INSIDE}/tools"),
        format!(
            r#"helm() {{ command helm "${{@/oci:\/\/{REGISTRY_INSIDE}/oci://{outside}}}" --plain-http; }}"#
        ),
    ];
    for command in &before {
        shell.run(command, BOUND).unwrap();
    }

    let leading = steps(PAGE).len() - 1;
    assert!(leading <= MOST_COMMANDS);
    let begin = BootInstant::now();
    let mut moments = Vec::new();
    replay(PAGE, |command| {
        moments.push(BootInstant::now());
        let answer = shell.run(command, BOUND);
        answer.unwrap_or_else(|error| panic!("{command}: {error:#}"))
    });
    println!(
        "{leading} commands and {:.1} s led to a guarded Deployment, with the pulling of images from a registry of this machine",
        moments[leading].saturating_since(begin).as_secs_f64()
    );
    // What runs is what was released...
    for (program, place) in [
        (
            "lockkeeper-operator",
            "--namespace lockkeeper-system deployment/lockkeeper",
        ),
        ("lockkeeper", "deployment/report --container lockkeeper"),
    ] {
        let released = dist.join(format!("{program}_{VERSION}_linux_{}", this_machine()));
        let running = format!("kubectl exec {place} -- /{program} --version");
        let running = shell.run(&running, BOUND).unwrap();
        assert_eq!(running.join("\n").trim(), said(released, ["--version"]).trim());
    }
    // ...and its plug-in sees nothing wrong with it.
    let checked = shell.run("kubectl lockkeeper check", BOUND).unwrap().join("\n");
    assert!(
        checked.contains(&format!("have the version {VERSION}")),
        "{checked}"
    );
}
