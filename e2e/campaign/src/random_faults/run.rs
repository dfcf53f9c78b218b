//! Execution of a plan.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use lockkeeper_judge::timeline::{Mark, MarkKind, Timeline};
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::faults::{Rationing, resume, stop};
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Ensemble, faults};
use lockkeeper_testbed::{Host, Unsupported};
use rustix::process::Pid;

use super::plan::{Fault, Plan, Role, Step};

/// How long a fault waits for its target: during an election there is no follower, and a killed worker has to
/// be started again. Generous: the machine may be busy.
const TARGET_BOUND: Duration = Duration::from_secs(30);

/// Period and slice of a starved process: it falls behind with its work in every tick.
const STARVATION: (Duration, Duration) = (Duration::from_millis(500), Duration::from_micros(500));

/// The programs that the plan strikes beside the servers.
pub trait Workers: Sync {
    fn host(&self, worker: usize) -> Host;

    /// The processes of a worker that may be stopped, starved or killed, in a fixed order; none while it is
    /// down. The caller restarts killed workers.
    fn processes(&self, worker: usize) -> Vec<Pid>;
}

/// The progress of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Struck {
        /// Description of the fault, with the server that it struck.
        label: String,
        at: BootInstant,
    },
    /// The same fault was undone.
    Over {
        /// As in [`Event::Struck`].
        label: String,
        at: BootInstant,
    },
    /// A fault had no target.
    Skipped {
        /// Description of that fault.
        label: String,
        reason: String,
    },
}

impl Event {
    pub fn mark(&self, timeline: &mut Timeline) {
        match self {
            Self::Struck { label, at } => {
                timeline.mark(Mark {
                    kind: MarkKind::Fault,
                    label: label.clone(),
                    from: *at,
                    to: None,
                });
            }
            Self::Over { label, at } => timeline.unmark(label, *at),
            Self::Skipped { .. } => {}
        }
    }
}

impl Plan {
    /// Strikes and undoes each fault at its time, until the end of the plan or until `stop` is set;
    /// then waits until all servers serve again.
    ///
    /// # Errors
    /// When a server that is to come back does not.
    pub fn run(
        &self,
        ensemble: &Ensemble,
        workers: &dyn Workers,
        stop: &AtomicBool,
        observe: &(dyn Fn(Event) + Sync),
    ) -> anyhow::Result<()> {
        let start = BootInstant::now();
        let track = |of_server: bool| {
            let strike = Strike {
                ensemble,
                workers,
                observe,
            };
            for step in self
                .steps
                .iter()
                .filter(|step| step.fault.is_of_server() == of_server)
            {
                if !pause((start + step.at) - BootInstant::now(), stop) {
                    break;
                }
                strike.step(step, stop)?;
            }
            anyhow::Ok(())
        };
        std::thread::scope(|scope| {
            let of_workers = scope.spawn(|| track(false));
            let of_servers = track(true);
            of_workers
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            of_servers
        })?;
        ensemble.wait_ready().context("after all faults were undone")
    }
}

/// Waits; false when it is to stop.
fn pause(duration: Duration, stop: &AtomicBool) -> bool {
    wait_for(duration, || stop.load(Ordering::Relaxed).then_some(())).is_none()
}

struct Strike<'a> {
    ensemble: &'a Ensemble,
    workers: &'a dyn Workers,
    observe: &'a (dyn Fn(Event) + Sync),
}

/// A fault with a duration. Drop undoes it, also when the test panics.
struct Lasting<'a>(Option<Undo<'a>>);

enum Undo<'a> {
    Heal(&'a Ensemble, Vec<(Host, Host)>),
    Resume(Pid),
    Launch(&'a Ensemble, usize),
    Feed(Rationing),
}

impl<'a> Strike<'a> {
    fn step(&self, step: &Step, stop: &AtomicBool) -> anyhow::Result<()> {
        let target = || {
            self.meet(step.fault)
                .map(Some)
                .or_else(|| stop.load(Ordering::Relaxed).then_some(None))
        };
        let Some((label, server)) = wait_for(TARGET_BOUND, target).flatten() else {
            let reason = "no server played that part, or the worker was down".to_owned();
            (self.observe)(Event::Skipped {
                label: step.fault.to_string(),
                reason,
            });
            return Ok(());
        };
        let at = BootInstant::now();
        if step.fault == Fault::RollingRestart {
            (self.observe)(Event::Struck {
                label: label.clone(),
                at,
            });
            self.ensemble.rolling_restart()?;
        } else {
            let lasting = match self.strike(step.fault, server) {
                Ok(lasting) => lasting,
                Err(error) => {
                    (self.observe)(Event::Skipped {
                        label,
                        reason: format!("{error:#}"),
                    });
                    return Ok(());
                }
            };
            (self.observe)(Event::Struck {
                label: label.clone(),
                at,
            });
            pause(step.lasts, stop);
            lasting.undo()?;
        }
        (self.observe)(Event::Over {
            label,
            at: BootInstant::now(),
        });
        Ok(())
    }

    /// The target of the fault, and its name; `None` if there is none.
    fn meet(&self, fault: Fault) -> Option<(String, usize)> {
        let role = match fault {
            Fault::IsolateServer(role)
            | Fault::CutFromLeader(role)
            | Fault::PauseServer(role)
            | Fault::KillServer(role)
            | Fault::CutWorker(_, role) => role,
            Fault::RollingRestart | Fault::IsolateWorker(_) => return Some((fault.to_string(), 0)),
            Fault::PauseWorker(worker, _) | Fault::KillWorker(worker, _) | Fault::StarveWorker(worker, _) => {
                return (!self.workers.processes(worker).is_empty()).then(|| (fault.to_string(), 0));
            }
        };
        let server = match role {
            Role::Leader => self.ensemble.leader()?,
            Role::Follower(index) => {
                let followers = self.ensemble.followers();
                *followers.get(index.checked_rem(followers.len())?)?
            }
        };
        let name = match role {
            Role::Leader => format!("leader ({})", self.ensemble.server(server).name()),
            Role::Follower(_) => format!("follower ({})", self.ensemble.server(server).name()),
        };
        Some((fault.to_string().replacen(&role.to_string(), &name, 1), server))
    }

    fn strike(&self, fault: Fault, server: usize) -> anyhow::Result<Lasting<'a>> {
        let ensemble = self.ensemble;
        let others = || {
            (0..ensemble.len())
                .filter(|&other| other != server)
                .collect::<Vec<_>>()
        };
        let to = |host: Host, servers: &[usize]| {
            servers
                .iter()
                .map(|&server| (host.clone(), ensemble.server(server).clone()))
                .collect::<Vec<_>>()
        };
        match fault {
            Fault::IsolateServer(_) => Ok(cut(ensemble, to(ensemble.server(server).clone(), &others()))?),
            Fault::CutFromLeader(_) => {
                let leader = ensemble.leader().context("no server leads")?;
                Ok(cut(ensemble, to(ensemble.server(server).clone(), &[leader]))?)
            }
            Fault::CutWorker(worker, _) => Ok(cut(ensemble, to(self.workers.host(worker), &[server]))?),
            Fault::IsolateWorker(worker) => {
                let all: Vec<_> = (0..ensemble.len()).collect();
                Ok(cut(ensemble, to(self.workers.host(worker), &all))?)
            }
            Fault::PauseServer(_) => {
                let pid = ensemble.pid(server).context("the server is down")?;
                stop(pid)?;
                Ok(Lasting(Some(Undo::Resume(pid))))
            }
            Fault::KillServer(_) => {
                ensemble.kill(server);
                Ok(Lasting(Some(Undo::Launch(ensemble, server))))
            }
            Fault::PauseWorker(worker, process) => {
                let pid = self.pick(worker, process)?;
                stop(pid)?;
                Ok(Lasting(Some(Undo::Resume(pid))))
            }
            Fault::KillWorker(worker, process) => {
                faults::kill(self.pick(worker, process)?)?;
                Ok(Lasting(None))
            }
            Fault::StarveWorker(worker, process) => {
                let rationing = Rationing::begin(self.pick(worker, process)?, STARVATION.0, STARVATION.1)?;
                Ok(Lasting(Some(Undo::Feed(rationing))))
            }
            Fault::RollingRestart => Ok(Lasting(None)),
        }
    }

    fn pick(&self, worker: usize, process: usize) -> anyhow::Result<Pid> {
        let processes = self.workers.processes(worker);
        let place = process
            .checked_rem(processes.len())
            .context("the worker is down")?;
        Ok(processes[place])
    }
}

fn cut(ensemble: &Ensemble, pairs: Vec<(Host, Host)>) -> Result<Lasting<'_>, Unsupported> {
    let mut done = Lasting(Some(Undo::Heal(ensemble, Vec::new())));
    for (a, b) in pairs {
        ensemble.cut(&a, &b)?;
        if let Some(Undo::Heal(_, cut)) = &mut done.0 {
            cut.push((a, b));
        }
    }
    Ok(done)
}

impl Lasting<'_> {
    fn undo(mut self) -> anyhow::Result<()> {
        self.end()
    }

    fn end(&mut self) -> anyhow::Result<()> {
        match self.0.take() {
            Some(Undo::Heal(ensemble, pairs)) => {
                for (a, b) in pairs {
                    ensemble.heal(&a, &b)?;
                }
            }
            // It may have been killed meanwhile.
            Some(Undo::Resume(pid)) => drop(resume(pid)),
            Some(Undo::Launch(ensemble, server)) => ensemble.launch(server)?,
            Some(Undo::Feed(rationing)) => drop(rationing),
            None => {}
        }
        Ok(())
    }
}

impl Drop for Lasting<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("A fault could not be undone: {error:#}");
        }
    }
}
