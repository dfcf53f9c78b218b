//! Faults of guarded pods, and how they are undone.

use std::net::SocketAddrV4;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_lock::BootInstant;
use lockkeeper_product::chart::SYSTEM;
use lockkeeper_product::space::{APPLICATION, GUARD, KEEPER, Space, processes};
use lockkeeper_testbed::faults::Flood;
use lockkeeper_testbed::{Ensemble, faults};
use rustix::process::Pid;

use crate::context::Context;

/// The port at which a sidecar answers probes (`--admin-listen`).
const ADMIN_PORT: u16 = 9808;

/// Connections a second that a stranger opens.
const FLOOD: u32 = 1_000;

type Mend<'a> = Box<dyn FnOnce() -> anyhow::Result<()> + 'a>;

/// A fault that lasts.
pub(super) struct Broken<'a> {
    label: String,
    touches: Vec<String>,
    pub(super) until: BootInstant,
    mend: Mend<'a>,
}

impl Broken<'_> {
    pub(super) fn mend(self, context: &mut Context<'_>) -> anyhow::Result<()> {
        (self.mend)()?;
        context.say(format!("  mended: {}", self.label))
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    NodeCut(u8),
    NodeCrashed(u8),
    CutFromEnsemble(u8),
    ProgramKilled(u8, &'static str),
    ApiServerKilled,
    ServerKilled(usize),
    ServerStopped(usize),
    KeeperStopped,
    KeeperKilled,
    GuardKilled,
    ApplicationKilled,
    PodDeleted,
    PodDeletedByForce,
    AskedToStepDown,
    Rollout,
    OperatorDeleted,
    SecondGuard,
    OtherRoot,
    Flood,
}

impl Fault {
    fn draw(random: &mut Rng) -> Self {
        let node = random.u8(1..=2);
        let server = random.usize(..3);
        let program = *random
            .choice(&["kubelet", "containerd", "kube-proxy"])
            .expect("there are some");
        let all = [
            Self::NodeCut(node),
            Self::NodeCut(node),
            Self::NodeCrashed(node),
            Self::CutFromEnsemble(node),
            Self::CutFromEnsemble(node),
            Self::ProgramKilled(node, program),
            Self::ApiServerKilled,
            Self::ServerKilled(server),
            Self::ServerStopped(server),
            Self::KeeperStopped,
            Self::KeeperStopped,
            Self::KeeperKilled,
            Self::GuardKilled,
            Self::ApplicationKilled,
            Self::PodDeleted,
            Self::PodDeletedByForce,
            Self::AskedToStepDown,
            Self::AskedToStepDown,
            Self::Rollout,
            Self::OperatorDeleted,
            Self::SecondGuard,
            Self::SecondGuard,
            Self::OtherRoot,
            Self::Flood,
            Self::Flood,
        ];
        all[random.usize(..all.len())]
    }

    /// The parts that it breaks. Until they are repaired, no other fault touches them.
    fn touches(self) -> Vec<String> {
        let api_server = || "API server".to_owned();
        match self {
            // Programs of a node serve only after they have reached the API server.
            Self::NodeCrashed(node) | Self::ProgramKilled(node, _) => {
                vec![format!("node {node}"), api_server()]
            }
            Self::NodeCut(node) | Self::CutFromEnsemble(node) => vec![format!("node {node}")],
            Self::ServerKilled(server) | Self::ServerStopped(server) => vec![format!("server {server}")],
            Self::ApiServerKilled => vec![api_server()],
            Self::OtherRoot => vec![format!("{self:?}"), api_server()],
            other => vec![format!("{other:?}")],
        }
    }

    /// Makes the fault; returns the repair, if it lasts.
    fn strike<'a>(self, space: &'a Space, random: &mut Rng) -> anyhow::Result<Option<Mend<'a>>> {
        let (cluster, installation) = (space.cluster, space.installation);
        let ensemble = installation.ensemble();
        match self {
            Self::NodeCut(number) => {
                let node = cluster.node(number)?;
                node.cut()?;
                lasts(move || Ok(node.restore()?))
            }
            Self::NodeCrashed(number) => {
                let node = cluster.node(number)?;
                node.crash()?;
                lasts(move || node.boot())
            }
            Self::CutFromEnsemble(number) => {
                installation.cut_from_ensemble(number)?;
                lasts(move || Ok(installation.heal_to_ensemble(number)?))
            }
            Self::ProgramKilled(number, program) => {
                let node = cluster.node(number)?;
                node.kill(program)?;
                lasts(move || node.start_again(program))
            }
            Self::ApiServerKilled => {
                cluster.kill("kube-apiserver")?;
                lasts(move || cluster.start_again("kube-apiserver"))
            }
            Self::ServerKilled(server) => {
                ensemble.kill(server);
                lasts(move || ensemble.restart(server))
            }
            Self::ServerStopped(server) => {
                faults::stop(server_pid(ensemble, server)?)?;
                lasts(move || Ok(faults::resume(server_pid(ensemble, server)?)?))
            }
            Self::KeeperStopped => {
                let keeper = any(KEEPER, random)?;
                faults::stop(keeper)?;
                // It may have been killed meanwhile: its pod was deleted, or its node has crashed.
                lasts(move || Ok(faults::resume(keeper).or_else(gone)?))
            }
            Self::KeeperKilled => over(faults::kill(any(KEEPER, random)?)?),
            Self::GuardKilled => over(faults::kill(any(GUARD, random)?)?),
            Self::ApplicationKilled => over(faults::kill(any(APPLICATION, random)?)?),
            Self::PodDeleted => {
                let pod = any_pod(space, &space.name, "app=worker", random)?;
                over(space.kubectl(&["delete", "pod", &pod, "--wait=false"])?)
            }
            Self::PodDeletedByForce => {
                let pod = any_pod(space, &space.name, "app=worker", random)?;
                let force = [
                    "delete",
                    "pod",
                    &pod,
                    "--force",
                    "--grace-period=0",
                    "--wait=false",
                ];
                over(space.kubectl(&force)?)
            }
            Self::AskedToStepDown => {
                let pod = holder(space, random)?;
                let exec = ["exec", &pod, "--container=lockkeeper", "--pod-running-timeout=2s"];
                over(space.kubectl(&[&exec[..], &["--", "/lockkeeper", "release"]].concat())?)
            }
            Self::Rollout => {
                let value = format!("ROUND={}", random.u32(..));
                over(space.kubectl(&["set", "env", "deployment/report", "--containers=app", &value])?)
            }
            // One of two replicas: without any, no deleted pod would be replaced.
            Self::OperatorDeleted => {
                let pod = any_pod(space, SYSTEM, "app.kubernetes.io/component=operator", random)?;
                over(cluster.kubectl(&["delete", "pod", "--namespace", SYSTEM, &pod, "--wait=false"])?)
            }
            Self::SecondGuard => {
                let (pod, binary) = (holder(space, random)?, "/lockkeeper/lockkeeper");
                let exec = ["exec", &pod, "--container=app", "--pod-running-timeout=2s"];
                let second = [
                    &exec[..],
                    &["--", binary, "guard", "--", "/program", "/records/none"],
                ];
                // The keeper refuses it, or the container has no such binary. Only the records matter.
                over(space.kubectl(&second.concat()).is_ok())
            }
            // As an upgrade does, but without helm: helm waits for the operator, and leaves half an upgrade
            // if another fault keeps the operator from being ready.
            Self::OtherRoot => {
                lead_to(space, "/elsewhere")?;
                lasts(move || lead_to(space, "/lockkeeper"))
            }
            Self::Flood => {
                let pod =
                    holder(space, random).or_else(|_| any_pod(space, &space.name, "app=worker", random))?;
                let address = space.kubectl(&["get", "pod", &pod, "--output=jsonpath={.status.podIP}"])?;
                let port = SocketAddrV4::new(address.parse()?, ADMIN_PORT);
                let flood = Flood::begin(cluster.control_plane()?, port, FLOOD);
                lasts(move || {
                    drop(flood);
                    Ok(())
                })
            }
        }
    }
}

/// Makes a fault in parts that are whole; returns whether that was possible.
pub(super) fn strike<'a>(
    context: &mut Context<'_>,
    space: &'a Space,
    broken: &mut Vec<Broken<'a>>,
) -> anyhow::Result<bool> {
    let fault = loop {
        let fault = Fault::draw(&mut context.random);
        let touches = fault.touches();
        let is_free = |broken: &Broken<'_>| broken.touches.iter().all(|one| !touches.contains(one));
        if broken.iter().all(is_free) {
            break fault;
        }
    };
    let lasts = Duration::from_millis(context.random.u64(500..12_000));
    match fault.strike(space, &mut context.random) {
        Ok(None) => context.say(format!("  {fault:?}"))?,
        Ok(Some(mend)) => {
            let label = format!("{fault:?}");
            context.say(format!("  {label} for {:.1} s", lasts.as_secs_f64()))?;
            broken.push(Broken {
                label,
                touches: fault.touches(),
                until: BootInstant::now() + lasts,
                mend,
            });
        }
        // There was no target, or the API server is down.
        Err(error) => {
            context.say(format!("  skipped: {fault:?}: {error:#}"))?;
            return Ok(false);
        }
    }
    Ok(true)
}

fn lead_to(space: &Space, root: &str) -> anyhow::Result<()> {
    let value = format!("LOCKKEEPER_ROOT={root}");
    let set = [
        "set",
        "env",
        "--namespace",
        SYSTEM,
        "deployment/lockkeeper",
        &value,
    ];
    space.cluster.kubectl(&set).map(drop)
}

fn lasts<'a>(mend: impl FnOnce() -> anyhow::Result<()> + 'a) -> anyhow::Result<Option<Mend<'a>>> {
    Ok(Some(Box::new(mend)))
}

fn over<'a, T>(_: T) -> anyhow::Result<Option<Mend<'a>>> {
    Ok(None)
}

fn gone(error: std::io::Error) -> std::io::Result<()> {
    if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) {
        Ok(())
    } else {
        Err(error)
    }
}

fn server_pid(ensemble: &Ensemble, server: usize) -> anyhow::Result<Pid> {
    ensemble
        .pid(server)
        .ok_or_else(|| anyhow::anyhow!("server {server} is down"))
}

/// One of the processes in pods whose command line begins with `command`.
fn any(command: &str, random: &mut Rng) -> anyhow::Result<Pid> {
    let found = processes(command, "kubepods");
    random
        .choice(found)
        .ok_or_else(|| anyhow::anyhow!("there is no {command}"))
}

/// A pod that is there and holds, according to its label. The lock's status would name the holder also after its
/// pod was deleted by force, until its contender is gone.
fn holder(space: &Space, random: &mut Rng) -> anyhow::Result<String> {
    any_pod(space, &space.name, "lockkeeper.io/role=active", random)
}

fn any_pod(space: &Space, namespace: &str, selector: &str, random: &mut Rng) -> anyhow::Result<String> {
    let names = space.cluster.kubectl(&[
        "get",
        "pods",
        "--namespace",
        namespace,
        "--selector",
        selector,
        "--output=jsonpath={.items[*].metadata.name}",
    ])?;
    random
        .choice(names.split_whitespace().collect::<Vec<_>>())
        .map(str::to_owned)
        .ok_or_else(|| anyhow::anyhow!("there is no pod with {selector}"))
}
