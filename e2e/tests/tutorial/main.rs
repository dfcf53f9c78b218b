//! `docs/tutorial.md`, command by command, on a cluster of three nodes: what the page shows is what a user gets.

mod page;

use std::time::Duration;

use lockkeeper_documents::replay;
use lockkeeper_product::{Shell, binaries, busybox_image, zookeeper_image};
use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::cluster::{Config, Node};

const NODES: u8 = 3;

/// For one command.
const BOUND: Duration = Duration::from_secs(360);

/// What only a cluster in containers has; the test does it to the node itself.
const STOP_NODE: &str = "docker kill ";
const START_NODE: &str = "docker start ";

#[test]
fn every_command_of_the_tutorial_does_what_the_page_shows() {
    let config = Config {
        nodes: NODES,
        ..Config::for_tests()
    };
    let Some(cluster) = Cluster::start_or_skip(&config) else {
        return;
    };
    load_images(&cluster);
    let mut shell = Shell::on(&cluster, &binaries::plugin().unwrap()).unwrap();
    replay(page::PAGE, |command| {
        let answer = if let Some(node) = command.strip_prefix(STOP_NODE) {
            to_node(&cluster, &mut shell, node, |node| node.crash())
        } else if let Some(node) = command.strip_prefix(START_NODE) {
            to_node(&cluster, &mut shell, node, |node| node.boot())
        } else {
            shell.run(command, BOUND)
        };
        answer.unwrap_or_else(|error| panic!("{command}: {error:#}"))
    });
}

/// As `kind load` does: nodes have the images by the names that the page and the charts give them.
fn load_images(cluster: &Cluster) {
    let tag = env!("CARGO_PKG_VERSION");
    for (folder, name) in [("sidecar", "lockkeeper"), ("operator", "lockkeeper-operator")] {
        let context = binaries::image_context(folder).unwrap();
        let name = format!("lockkeeper/{name}:{tag}");
        cluster.push_image(&name, &context, Some("prebuilt")).unwrap();
    }
    zookeeper_image::push(cluster, "library/zookeeper:3.9").unwrap();
    busybox_image::push(cluster, "library/busybox:1.37").unwrap();
}

/// Does something to the node that a word of the page names. The answer is its name, as from the engine of containers.
fn to_node(
    cluster: &Cluster,
    shell: &mut Shell,
    word: &str,
    act: impl FnOnce(Node<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<String>> {
    let answer = shell.run(&format!("echo {word}"), BOUND)?;
    let node = (1..=NODES)
        .filter_map(|number| cluster.node(number).ok())
        .find(|node| answer == [node.name()])
        .ok_or_else(|| anyhow::anyhow!("there is no node {answer:?}"))?;
    act(node)?;
    Ok(answer)
}
