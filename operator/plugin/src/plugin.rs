//! `kubectl lockkeeper`: answers questions about locks from the Kubernetes API alone, without access to the ensemble.

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::keys::{self, HANDOFF};
use lockkeeper_daemon::exit::Failure;
use lockkeeper_daemon::table::plain;
use lockkeeper_daemon::{duration, version};
use serde_json::json;

use crate::check;
use crate::doubt::stale;
use crate::explain::{can_hand_over, explain};
use crate::history::Holds;
use crate::list::Listing;
use crate::machines;
use crate::output::Output;
use crate::problem::{failed, missing};
use crate::survivors;
use crate::ui::Ui;
use crate::workload;

/// Time between two looks at a lock that is being handed over.
const POLL: Duration = Duration::from_millis(300);

/// What `--version` tells.
static VERSION: LazyLock<String> = LazyLock::new(|| version::long(env!("CARGO_PKG_VERSION"), &[]));

/// Shows the locks of a cluster, their queues and former holders, says why a pod waits, and hands a lock over
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-lockkeeper",
    bin_name = "kubectl lockkeeper",
    version,
    long_version = VERSION.as_str()
)]
pub struct Plugin {
    /// Where to ask
    #[command(flatten)]
    pub target: Target,

    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Where to ask.
#[derive(Debug, Args)]
pub struct Target {
    /// Namespace. Default: the one of the kubeconfig's context
    #[arg(short, long, global = true)]
    pub namespace: Option<String>,

    /// Context of the kubeconfig
    #[arg(long, global = true)]
    pub context: Option<String>,

    /// The kubeconfig. Default: as kubectl does, $KUBECONFIG or ~/.kube/config
    #[arg(long, global = true)]
    pub kubeconfig: Option<PathBuf>,

    /// Output format
    #[arg(short, long, global = true, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Lists locks with their holders
    List {
        /// Of all namespaces
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Only those with these labels, as for `kubectl get`
        #[arg(short = 'l', long, value_name = "LABELS")]
        selector: Option<String>,
        /// Then show each lock again when it changes
        #[arg(short, long)]
        watch: bool,
    },
    /// Shows one lock: who holds it, who waits, and what is wrong
    Status {
        /// Name of the lock
        lock: String,
    },
    /// Shows who has held a lock, from when until when, and how each hold ended
    History {
        /// Name of the lock
        lock: String,
    },
    /// Asks the holder to step down, and waits until another pod holds the lock
    Handoff {
        /// Name of the lock
        lock: String,
        /// The pod that is to hold next. Default: the next in the queue
        #[arg(long, value_name = "POD")]
        to: Option<String>,
        /// How long to wait
        #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = duration::parse)]
        timeout: Duration,
    },
    /// Says why a pod runs its application, or why not
    Why {
        /// Name of the pod
        pod: String,
    },
    /// Serves a page on this machine with all locks, live: who holds, who waits, when nobody held
    Ui {
        /// Of all namespaces
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Only those with these labels, as for `kubectl get`
        #[arg(short = 'l', long, value_name = "LABELS")]
        selector: Option<String>,
        /// The port on 127.0.0.1. Default: one that is free
        #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
        port: u16,
    },
    /// Checks the installation: operator, versions, rights, webhooks, policies, locks, sidecars
    Check,
    /// Lets the lock expire although a process of a pod outlives SIGKILL: use it only if that process can do no harm
    AbandonSurvivors {
        /// Name of the pod that keeps the lock
        pod: String,
    },
}

impl Plugin {
    /// Does it, and prints the answer.
    ///
    /// # Errors
    /// What cannot be done, in one sentence, and what `print` returns.
    pub async fn run(self, mut print: impl FnMut(&str) -> Result<(), Failure>) -> Result<(), Failure> {
        let Self { target, command } = self;
        let (output, context) = (target.output, target.context.clone());
        let (client, namespace) = target.connect().await?;
        let locks: Api<DistributedLock> = Api::namespaced(client.clone(), &namespace);
        let answer = match command {
            Command::List {
                all_namespaces,
                selector,
                watch,
            } => {
                let listing = Listing {
                    locks: if all_namespaces { Api::all(client) } else { locks },
                    selector,
                    with_namespace: all_namespaces,
                    output,
                };
                return match watch {
                    true => listing.follow(&mut print).await,
                    false => listing.once(&mut print).await,
                };
            }
            Command::Status { lock } => output.one(&get(&locks, &namespace, &lock).await?),
            Command::History { lock } => {
                let status = get(&locks, &namespace, &lock).await?.status.unwrap_or_default();
                let holds = Holds::of(&status);
                output.text(&holds, || {
                    let old = stale(&status).map(|old| format!("{}.\n\n", plain(&old)));
                    old.unwrap_or_default() + &holds.table(Timestamp::now())
                })
            }
            Command::Handoff { lock, to, timeout } => {
                let lock = hand_over(&locks, &namespace, &lock, to.as_deref(), timeout).await?;
                output.one(&lock)
            }
            Command::Ui {
                all_namespaces,
                selector,
                port,
            } => {
                let ui = Ui {
                    client,
                    namespace: (!all_namespaces).then_some(namespace),
                    context,
                    selector,
                    port,
                };
                return ui.run(&mut print).await;
            }
            Command::Check => return check::check(&client, &namespace, output, &mut print).await,
            Command::Why { pod } => why(client, &namespace, &pod, output).await,
            Command::AbandonSurvivors { pod } => {
                survivors::abandon(&Api::namespaced(client, &namespace), &pod).await
            }
        };
        print(&answer?)
    }
}

impl Target {
    /// A client, and the namespace to ask in.
    ///
    /// # Errors
    /// When the kubeconfig cannot be used.
    pub(crate) async fn connect(self) -> Result<(Client, String), Failure> {
        let options = KubeConfigOptions {
            context: self.context,
            ..KubeConfigOptions::default()
        };
        let config = match &self.kubeconfig {
            None => Config::from_kubeconfig(&options).await,
            Some(path) => match Kubeconfig::read_from(path) {
                Ok(kubeconfig) => Config::from_custom_kubeconfig(kubeconfig, &options).await,
                Err(error) => Err(error),
            },
        };
        let config =
            config.map_err(|error| Failure::usage(format!("the kubeconfig cannot be used: {error}")))?;
        let namespace = self.namespace.unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config)
            .map_err(|error| Failure::usage(format!("the kubeconfig cannot be used: {error}")))?;
        Ok((client, namespace))
    }
}

async fn hand_over(
    locks: &Api<DistributedLock>,
    namespace: &str,
    name: &str,
    to: Option<&str>,
    timeout: Duration,
) -> Result<DistributedLock, Failure> {
    let before = get(locks, namespace, name).await?;
    can_hand_over(&before, to).map_err(Failure::usage)?;
    let patch = json!({"metadata": {"annotations": {HANDOFF: to.unwrap_or_default()}}});
    let patched = locks
        .patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    patched.map_err(|error| failed("ask for the handoff", &error))?;
    let known: Vec<_> = tokens(&before);
    let handed_over = async {
        loop {
            let lock = get(locks, namespace, name).await?;
            let is_new = tokens(&lock).iter().any(|token| !known.contains(token));
            if is_new && !lock.annotations().contains_key(HANDOFF) {
                return Ok(lock);
            }
            tokio::time::sleep(POLL).await;
        }
    };
    tokio::time::timeout(timeout, handed_over).await.map_err(|_| {
        Failure::unavailable(format!(
            "{name} was not handed over within {}: see `kubectl describe distributedlock {name}`",
            duration::format(timeout)
        ))
    })?
}

fn tokens(lock: &DistributedLock) -> Vec<i64> {
    let status = lock.status.iter();
    status
        .flat_map(|status| status.holders.iter().map(|holder| holder.fencing_token))
        .collect()
}

async fn why(client: Client, namespace: &str, name: &str, output: Output) -> Result<String, Failure> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let pod = match pods.get_opt(name).await {
        Ok(Some(pod)) => pod,
        Ok(None) => {
            return Err(Failure::usage(format!(
                "there is no pod {name} in the namespace {namespace}"
            )));
        }
        Err(error) => return Err(failed("read the pod", &error)),
    };
    let lock = match pod
        .labels()
        .get(keys::LOCK)
        .or_else(|| pod.annotations().get(keys::LOCK))
    {
        None => None,
        Some(lock) => {
            let api: Api<DistributedLock> = Api::namespaced(client.clone(), namespace);
            let found = api.get_opt(lock).await;
            found.map_err(|error| failed("read the lock", &error))?
        }
    };
    let above = workload::above(&client, namespace, pod.owner_references()).await;
    // A user that may not read the namespace gets the rest of the answer.
    let space = Api::<Namespace>::all(client.clone())
        .get_opt(namespace)
        .await
        .ok()
        .flatten();
    let is_left_out = space.is_some_and(|space| {
        let injection = space.labels().get(keys::INJECTION);
        injection.is_some_and(|value| value == "disabled")
    });
    let mut explanation = explain(&pod, &above, is_left_out, lock.as_ref());
    let nodes = machines::out_of_service(&client, lock.as_ref(), &explanation).await;
    explanation.sentence.extend(machines::remark(&nodes));
    output.text(&explanation, || format!("{}\n", plain(&explanation.sentence)))
}

async fn get(locks: &Api<DistributedLock>, namespace: &str, name: &str) -> Result<DistributedLock, Failure> {
    match locks.get_opt(name).await {
        Ok(Some(lock)) => Ok(lock),
        Ok(None) => Err(missing(locks, namespace, name).await),
        Err(error) => Err(failed("read the lock", &error)),
    }
}
