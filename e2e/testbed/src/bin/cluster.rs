//! A real Kubernetes cluster on this machine, for a developer and for the tests.

use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lockkeeper_testbed::Cluster;
use lockkeeper_testbed::clock::since_boot;
use lockkeeper_testbed::cluster::build::Programs;
use lockkeeper_testbed::cluster::{self, Config, NodeLayout, REGISTRY_INSIDE};

/// A real Kubernetes cluster on this machine: two nodes in network namespaces. Needs root.
#[derive(Parser)]
#[command(name = "lockkeeper-cluster")]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Build the programs of the cluster, unless they have been built.
    Build,
    /// Print the path of one of its programs, such as helm; build them first unless they have been built.
    Program {
        /// As its file is called.
        name: String,
    },
    /// Start a cluster, and leave it running.
    Up(Shape),
    /// End the cluster, and remove every trace of it and of clusters that were killed.
    Down,
    /// Build the Dockerfile in a folder, and push it to the registry of the running cluster.
    Push {
        /// Name of the image, with a tag: `name:tag`.
        name: String,
        /// With the Dockerfile, and what it copies.
        folder: std::path::PathBuf,
    },
    /// Pull the cable of a node of the running cluster.
    Cut {
        /// Its number.
        node: u8,
    },
    /// Put the cable of a node back.
    Restore {
        /// Its number.
        node: u8,
    },
    /// Kill everything on a node of the running cluster.
    Crash {
        /// Its number.
        node: u8,
    },
    /// Start a crashed node again.
    Boot {
        /// Its number.
        node: u8,
    },
    /// Run as the supervisor that owns a cluster, until standard input ends.
    #[command(hide = true)]
    Supervise {
        #[command(flatten)]
        shape: Shape,
        /// Keep running after the end of standard input.
        #[arg(long)]
        detached: bool,
    },
}

#[derive(Args)]
struct Shape {
    /// How many nodes.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=i64::from(NodeLayout::MOST)))]
    nodes: u8,
    /// How long a node may be silent until it is NotReady: whole seconds, such as 12s; at least 4s.
    #[arg(long, default_value = "40s", value_parser = seconds)]
    node_grace: Duration,
}

impl Shape {
    fn config(&self) -> Config {
        Config {
            nodes: self.nodes,
            node_grace: self.node_grace,
        }
    }
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().verb {
        Verb::Build => {
            let kubectl = Programs::built()?.path("kubectl");
            println!(
                "The cluster's programs have been built: {} is one.",
                kubectl.display()
            );
            Ok(())
        }
        Verb::Program { name } => {
            println!("{}", Programs::built()?.path(&name).display());
            Ok(())
        }
        Verb::Up(shape) => up(&shape.config()),
        Verb::Down => down(),
        Verb::Push { name, folder } => {
            println!("{}", Cluster::running()?.push_image(&name, &folder, None)?);
            Ok(())
        }
        Verb::Cut { node } => Ok(Cluster::running()?.node(node)?.cut()?),
        Verb::Restore { node } => Ok(Cluster::running()?.node(node)?.restore()?),
        Verb::Crash { node } => Cluster::running()?.node(node)?.crash(),
        Verb::Boot { node } => Cluster::running()?.node(node)?.boot(),
        Verb::Supervise { shape, detached } => cluster::supervisor::run(&shape.config(), detached),
    }
}

fn up(config: &Config) -> anyhow::Result<()> {
    let programs = Programs::built()?;
    let began = since_boot();
    Cluster::leave_running(config)?;
    let took = (since_boot() - began).as_secs_f64();
    let kubectl = programs.path("kubectl");
    let folder = kubectl.parent().unwrap_or(&kubectl);
    println!(
        "The cluster is ready after {took:.1} s. In your shell:\n\n  \
         export KUBECONFIG={}\n  export PATH=$PATH:{}:{}\n  kubectl get nodes\n\n\
         Its registry is {REGISTRY_INSIDE} for pods, 127.0.0.1:{} for this machine:\n\n  \
         lockkeeper-cluster push app:1 FOLDER-WITH-A-DOCKERFILE\n\n\
         A shell on its control plane's host, which pods and services' pods can reach:\n\n  \
         nsenter --net=/run/netns/{}\n\n\
         Logs are in {}/log. `make cluster-down` ends it.",
        cluster::kubeconfig().display(),
        folder.display(),
        programs.containers().display(),
        cluster::registry_port_outside(),
        cluster::control_plane(),
        cluster::directory().display(),
    );
    Ok(())
}

fn down() -> anyhow::Result<()> {
    let began = since_boot();
    Cluster::stop_running()?;
    let took = (since_boot() - began).as_secs_f64();
    println!("No trace of a cluster is left, after {took:.1} s.");
    Ok(())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').and_then(|number| number.parse().ok());
    match number {
        Some(number @ 4..=3600) => Ok(Duration::from_secs(number)),
        _ => Err("give whole seconds from 4s to 3600s, such as 40s".to_owned()),
    }
}
