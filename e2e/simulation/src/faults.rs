//! Random faults.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_fake::{EnsembleFaults, Traffic};
use lockkeeper_lock::LeaseDuration;
use lockkeeper_sidecar::link::protocol::{Containment, FRAME_LEN, FromGuard, Hello};
use lockkeeper_sidecar::simulation::Kind;
use tokio::time::sleep;

use crate::machine::Wish;
use crate::plan::{Hazard, LONGEST_HANG, Mood, Plan, SHORTEST_T, TICK};
use crate::pod::Pod;
use crate::simulation::Simulation;

/// Longest time from a connection to the guard's new deadline, in a network without faults.
const TOLD: Duration = Duration::from_millis(200);

pub(crate) struct Faults<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) simulation: &'a Rc<Simulation>,
    pub(crate) plan: &'a Plan,
    pub(crate) pods: &'a [Rc<Pod>],
    pub(crate) ensemble: EnsembleFaults,
}

impl Faults<'_> {
    fn t(&self) -> Duration {
        self.plan.timing.session_timeout
    }

    fn within(&mut self, longest: Duration) -> Duration {
        Duration::from_millis(self.rng.u64(..=longest.as_millis() as u64))
    }

    fn pod(&mut self) -> Rc<Pod> {
        Rc::clone(&self.pods[self.rng.usize(..self.pods.len())])
    }

    /// A pod whose application runs, if there is one.
    fn holder(&mut self) -> Rc<Pod> {
        let holder = self
            .simulation
            .ledger
            .borrow()
            .running()
            .next()
            .map(|work| work.pod);
        match holder {
            Some(number) => Rc::clone(&self.pods[number]),
            None => self.pod(),
        }
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.simulation.say(|| format!("FAULT {}", what()));
    }

    pub(crate) async fn strike(&mut self) {
        match self.plan.mood {
            Mood::Network if self.rng.u8(..5) > 0 => self.network(),
            Mood::Processes if self.rng.u8(..4) == 0 => self.network(),
            Mood::Network | Mood::Processes => self.process(),
            Mood::Hazard(Hazard::Intruders) => match self.rng.u8(..4) {
                0 => self.network(),
                1 => self.process(),
                _ => self.intruder(),
            },
            Mood::Hazard(Hazard::Disagreement) => match self.rng.bool() {
                true => self.network(),
                false => self.process(),
            },
            Mood::Hazard(Hazard::SlowExpiry) => self.slow_expiry().await,
            Mood::Hazard(Hazard::ShorterSessions) => self.shorter_session().await,
            Mood::Hazard(Hazard::Survivors) => self.survivor().await,
        }
    }

    fn network(&mut self) {
        let (pod, server) = (self.pod(), self.rng.usize(..self.plan.servers));
        let length = self.within(self.t() * 2);
        let (world, name) = (&self.simulation.world, &pod.machine.name);
        let kind = self.rng.u8(..13);
        self.say(|| {
            let mine = world.server_of(name);
            format!("network {kind}, {name}, server {server} or {mine:?}, {length:?}")
        });
        self.ensemble.strike(world, self.rng, kind, name, server, length);
    }

    fn process(&mut self) {
        let pod = if self.rng.bool() {
            self.holder()
        } else {
            self.pod()
        };
        let length = self.within(self.t() * 2);
        let kind = self.rng.u8(..12);
        self.say(|| format!("process {kind}, {}, {length:?}", pod.machine.name));
        match kind {
            // Not while the guard is stopped: with the keeper frozen or gone too, no process is left that
            // could act.
            0 | 1 if !pod.is_guard_stopped() => self.simulation.world.freeze(&pod.machine.name, length),
            2 | 3 if !pod.is_guard_stopped() => pod.kill_keeper(),
            // In signal mode a killed guard leaves the stop to its keeper and the kubelet, which may act too
            // late.
            4 | 5 | 8 if pod.machine.policy.kind == Kind::Signal => {}
            4 | 5 => pod.machine.kill_guards(),
            6 => pod.machine.terminate_guard(),
            7 => pod.machine.kill_application(),
            8 => {
                pod.kill_keeper();
                pod.machine.kill_guards();
            }
            9 => pod.machine.wishes.push(Wish::StepDown),
            10 if pod.machine.policy.kind == Kind::Run && pod.has_keeper() => self.stop_guard(&pod, length),
            10 if pod.machine.policy.kind == Kind::Wrap => pod.machine.disconnect_guard(),
            11 if pod.machine.policy.kind == Kind::Wrap => pod.machine.wishes.push(Wish::End),
            _ => {}
        }
    }

    fn stop_guard(&mut self, pod: &Pod, length: Duration) {
        // A keeper that is frozen cannot end a guard that is stopped.
        self.simulation.world.freeze(&pod.machine.name, Duration::ZERO);
        pod.stop_guard(length);
    }

    fn intruder(&mut self) {
        let pod = self.holder();
        let stays = self.within(Duration::from_secs(1));
        let kind = self.rng.u8(..4);
        self.say(|| format!("intruder {kind}, {}, for {stays:?}", pod.machine.name));
        let hello = FromGuard::Hello(Hello {
            pid: 1,
            instance: self.rng.u64(..),
            is_first: self.rng.bool(),
            has_ticket: false,
            tree: None,
            containment: Containment::Sweep,
            clock: 0,
        });
        match kind {
            0 | 1 => pod.start_another_guard(),
            2 => {
                let bytes = (0..self.rng.usize(..2 * FRAME_LEN))
                    .map(|_| self.rng.u8(..))
                    .collect();
                pod.machine.visit(bytes, stays);
            }
            _ => pod.machine.visit(hello.encode().to_vec(), stays),
        }
    }

    /// A waiter is cut off until its session is about to end. The holder leaves, so that it is the waiter's
    /// turn when it comes back; then the waiter is cut off again.
    async fn slow_expiry(&mut self) {
        let (away, holder) = (self.pod(), self.holder());
        let length = self.t() + self.within(TICK + Duration::from_millis(400));
        let is_frozen = self.rng.bool();
        self.say(|| format!("{} is away for {length:?}, frozen {is_frozen}", away.machine.name));
        match is_frozen {
            true => self.simulation.world.freeze(&away.machine.name, length),
            false => self.simulation.world.isolate(&away.machine.name, length),
        }
        let first = self.within(length);
        sleep(first).await;
        if holder.machine.number != away.machine.number {
            self.say(|| format!("{} has to step down", holder.machine.name));
            holder.machine.wishes.push(Wish::StepDown);
        }
        sleep(length.saturating_sub(first) + self.within(Duration::from_millis(500))).await;
        if self.rng.bool() {
            let again = self.within(self.t());
            self.say(|| format!("{} is away again for {again:?}", away.machine.name));
            self.simulation.world.isolate(&away.machine.name, again);
        }
    }

    /// A holder's session moves to a server that grants less, and then sends nothing any more. From then on
    /// all servers grant the full timeout again: an attempt to attach that gets no answer from a server that
    /// grants less is a documented limit (`docs/safety.md`, "A server that grants less time"), and is not
    /// tried.
    async fn shorter_session(&mut self) {
        self.until_all_are_told().await;
        let holder = self.holder();
        let longest = SHORTEST_T + self.within(self.t() - SHORTEST_T);
        for server in 0..self.plan.servers {
            if self.rng.bool() {
                self.simulation.world.limit_sessions(server, longest);
            }
        }
        self.say(|| {
            format!(
                "{} is disconnected; some servers grant {longest:?}",
                holder.machine.name
            )
        });
        self.simulation.world.disconnect(&holder.machine.name);
        self.until_all_are_told().await;
        for server in 0..self.plan.servers {
            self.simulation.world.limit_sessions(server, Duration::MAX);
        }
        let gap = self.within(Duration::from_secs(2));
        sleep(gap).await;
        let length = self.within(self.t() * 2);
        match self.rng.u8(..4) {
            0 => self.process(),
            1 => self.simulation.world.elect(self.rng.usize(..self.plan.servers)),
            _ => {
                self.say(|| format!("{} is isolated for {length:?}", holder.machine.name));
                self.simulation.world.isolate(&holder.machine.name, length);
                sleep(length).await;
            }
        }
    }

    /// Waits until every grant of a server has reached its guard: without that, exclusion needs servers that
    /// all grant the same (`docs/safety.md`).
    async fn until_all_are_told(&self) {
        let is_connected = |pod: &Rc<Pod>| self.simulation.world.server_of(&pod.machine.name).is_some();
        let end = self.simulation.now() + self.t() * 2;
        while !self.pods.iter().all(is_connected) && self.simulation.now() < end {
            sleep(TOLD).await;
        }
        sleep(TOLD).await;
    }

    /// A process hangs, and the lock has to move. The keeper lives, and its messages arrive.
    async fn survivor(&mut self) {
        let holder = self.holder();
        let hangs = self.within(self.t() * LONGEST_HANG);
        holder.machine.hang(hangs);
        let pause = self.within(TICK);
        sleep(pause).await;
        let kind = self.rng.u8(..8);
        let length = self.within(self.t() * 3 / 2);
        self.say(|| format!("survivor {kind}, {}, {length:?}", holder.machine.name));
        let world = &self.simulation.world;
        match kind {
            0 => holder.machine.wishes.push(Wish::StepDown),
            1 => holder.machine.kill_application(),
            2 => holder.machine.terminate_guard(),
            // The session goes on without answers, and nothing else does: a contender that states a lease duration
            // keeps its place by acknowledged writes (docs/safety.md, "The takeover lease").
            3 if self.has_no_lease(&holder) => {
                for server in 0..self.plan.servers {
                    world.cut_client(&holder.machine.name, server, Traffic::Answers, length);
                }
            }
            4 => world.elect(self.rng.usize(..self.plan.servers)),
            // In signal mode a killed guard leaves the stop to its keeper and the kubelet, which may act too
            // late.
            5 if holder.machine.policy.kind != Kind::Signal => holder.machine.kill_guards(),
            6 if holder.machine.policy.kind == Kind::Run => self.stop_guard(&holder, length),
            _ => world.disconnect(&holder.machine.name),
        }
        if self.rng.bool() {
            let pause = self.within(self.t());
            sleep(pause).await;
            self.simulation.world.disconnect(&holder.machine.name);
        }
    }

    /// Only its session decides about its contender.
    fn has_no_lease(&self, pod: &Pod) -> bool {
        self.plan.pods[pod.machine.number].lease_duration == LeaseDuration::Off
    }

    /// Ends all faults.
    pub(crate) fn end(&mut self) {
        let world = &self.simulation.world;
        self.ensemble.end(world);
        for pod in self.pods {
            world.freeze(&pod.machine.name, Duration::ZERO);
            pod.stop_guard(Duration::ZERO);
        }
        self.simulation.is_calm.set(true);
        self.simulation.say(|| "All is well from now on".to_owned());
    }
}
