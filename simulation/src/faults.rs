//! Faults at random.

use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use lockkeeper_lock::fake::Traffic;
use lockkeeper_sidecar::guard::protocol::{FRAME_LEN, FromGuard, Hello};
use lockkeeper_sidecar::simulation::Kind;
use tokio::time::sleep;

use crate::keeper::Wish;
use crate::plan::{Hazard, LONGEST_HANG, Mood, Plan, SHORTEST_T, TICK};
use crate::pod::Pod;
use crate::stage::Stage;

/// How long it takes at most, in a network that is well, from a connection to the guard's new deadline.
const TOLD: Duration = Duration::from_millis(200);

pub(crate) struct Faults<'a> {
    pub(crate) rng: &'a mut Rng,
    pub(crate) stage: &'a Rc<Stage>,
    pub(crate) plan: &'a Plan,
    pub(crate) pods: &'a [Rc<Pod>],
    /// One server at most: the others are a majority.
    pub(crate) stopped: Option<usize>,
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

    /// One that runs something, if there is any.
    fn holder(&mut self) -> Rc<Pod> {
        let holder = self.stage.ledger.borrow().running().next().map(|work| work.pod);
        match holder {
            Some(number) => Rc::clone(&self.pods[number]),
            None => self.pod(),
        }
    }

    fn server(&mut self) -> usize {
        self.rng.usize(..self.plan.servers)
    }

    fn server_of(&mut self, pod: &Pod) -> usize {
        let server = self.server();
        self.stage.world.server_of(&pod.name).unwrap_or(server)
    }

    fn say(&self, what: impl FnOnce() -> String) {
        self.stage.say(|| format!("FAULT {}", what()));
    }

    /// Lets something go wrong.
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
        let (pod, server) = (self.pod(), self.server());
        let mine = self.server_of(&pod);
        let length = self.within(self.t() * 2);
        let world = &self.stage.world;
        let name = &pod.name;
        let kind = self.rng.u8(..13);
        self.say(|| format!("network {kind}, {name}, server {server} or {mine}, {length:?}"));
        match kind {
            0 => world.isolate(name, length),
            1 => {
                let traffic = [Traffic::Requests, Traffic::Answers, Traffic::Both][self.rng.usize(..3)];
                world.cut_client(name, mine, traffic, length);
            }
            2 | 3 => world.cut_server(mine, length),
            4 => world.stall(mine, length / 2),
            5 => world.stall(world.leader(), length / 2),
            6 => world.elect(server),
            7 => match self.stopped.take() {
                Some(stopped) => world.start(stopped),
                None => {
                    world.stop(server);
                    self.stopped = Some(server);
                }
            },
            8 | 9 => world.disconnect(name),
            10 => world.lose_next_answer(name),
            _ => world.set_lag(server, length / 12),
        }
    }

    fn process(&mut self) {
        let pod = if self.rng.bool() {
            self.holder()
        } else {
            self.pod()
        };
        let length = self.within(self.t() * 2);
        let kind = self.rng.u8(..12);
        self.say(|| format!("process {kind}, {}, {length:?}", pod.name));
        match kind {
            // Where both are stopped, or the keeper is gone, nothing is left that could act.
            0 | 1 if !pod.is_guard_stopped() => self.stage.world.freeze(&pod.name, length),
            2 | 3 if !pod.is_guard_stopped() => pod.kill_keeper(),
            // Beside a container a killed guard leaves it to the kubelet of its own to act in time.
            4 | 5 | 8 if pod.policy.kind == Kind::Signal => {}
            4 | 5 => pod.kill_guards(),
            6 => pod.terminate_guard(),
            7 => pod.kill_application(),
            8 => {
                pod.kill_keeper();
                pod.kill_guards();
            }
            9 => pod.wishes.push(Wish::StepDown),
            10 if pod.policy.kind == Kind::Run && pod.has_keeper() => self.stop_guard(&pod, length),
            10 if pod.policy.kind == Kind::Wrap => pod.disconnect_guard(),
            11 if pod.policy.kind == Kind::Wrap => pod.wishes.push(Wish::End),
            _ => {}
        }
    }

    fn stop_guard(&mut self, pod: &Pod, length: Duration) {
        // A keeper that is frozen cannot end a guard that is stopped.
        self.stage.world.freeze(&pod.name, Duration::ZERO);
        pod.stop_guard(length);
    }

    fn intruder(&mut self) {
        let pod = self.holder();
        let stays = self.within(Duration::from_secs(1));
        let kind = self.rng.u8(..4);
        self.say(|| format!("intruder {kind}, {}, for {stays:?}", pod.name));
        let hello = FromGuard::Hello(Hello {
            pid: 1,
            instance: self.rng.u64(..),
            is_first: self.rng.bool(),
            token: None,
            paused: false,
            containment: None,
            clock: 0,
        });
        match kind {
            0 | 1 => pod.start_another_guard(),
            2 => {
                let bytes = (0..self.rng.usize(..2 * FRAME_LEN))
                    .map(|_| self.rng.u8(..))
                    .collect();
                pod.visit(bytes, stays);
            }
            _ => pod.visit(hello.encode().to_vec(), stays),
        }
    }

    /// A waiter is away until its session is about to end. The holder leaves, so that it is its turn
    /// when it comes back; then it is away again.
    async fn slow_expiry(&mut self) {
        let (away, holder) = (self.pod(), self.holder());
        let length = self.t() + self.within(TICK + Duration::from_millis(400));
        let is_frozen = self.rng.bool();
        self.say(|| format!("{} is away for {length:?}, frozen {is_frozen}", away.name));
        match is_frozen {
            true => self.stage.world.freeze(&away.name, length),
            false => self.stage.world.isolate(&away.name, length),
        }
        let first = self.within(length);
        sleep(first).await;
        if holder.number != away.number {
            self.say(|| format!("{} has to step down", holder.name));
            holder.wishes.push(Wish::StepDown);
        }
        sleep(length.saturating_sub(first) + self.within(Duration::from_millis(500))).await;
        if self.rng.bool() {
            let again = self.within(self.t());
            self.say(|| format!("{} is away again for {again:?}", away.name));
            self.stage.world.isolate(&away.name, again);
        }
    }

    /// A holder's session comes to a server that grants less, and then is not heard of any more.
    async fn shorter_session(&mut self) {
        self.until_all_are_told().await;
        let holder = self.holder();
        let longest = SHORTEST_T + self.within(self.t() - SHORTEST_T);
        for server in 0..self.plan.servers {
            if self.rng.bool() {
                self.stage.world.limit_sessions(server, longest);
            }
        }
        self.say(|| format!("{} is disconnected; some servers grant {longest:?}", holder.name));
        self.stage.world.disconnect(&holder.name);
        self.until_all_are_told().await;
        let gap = self.within(Duration::from_secs(2));
        sleep(gap).await;
        let length = self.within(self.t() * 2);
        match self.rng.u8(..4) {
            0 => self.process(),
            1 => self.stage.world.elect(self.rng.usize(..self.plan.servers)),
            _ => {
                self.say(|| format!("{} is isolated for {length:?}", holder.name));
                self.stage.world.isolate(&holder.name, length);
            }
        }
    }

    /// What a server grants has to get to the guard: where it does not the lock holds only if all servers
    /// grant the same (`docs/safety.md`).
    async fn until_all_are_told(&self) {
        let is_connected = |pod: &Rc<Pod>| self.stage.world.server_of(&pod.name).is_some();
        let end = self.stage.now() + self.t() * 2;
        while !self.pods.iter().all(is_connected) && self.stage.now() < end {
            sleep(TOLD).await;
        }
        sleep(TOLD).await;
    }

    /// A process hangs, and the lock is to go elsewhere. The keeper lives, and what it sends arrives.
    async fn survivor(&mut self) {
        let holder = self.holder();
        let hangs = self.within(self.t() * LONGEST_HANG);
        holder.hang(hangs);
        let pause = self.within(TICK);
        sleep(pause).await;
        let kind = self.rng.u8(..8);
        let length = self.within(self.t() * 3 / 2);
        self.say(|| format!("survivor {kind}, {}, {length:?}", holder.name));
        let world = &self.stage.world;
        match kind {
            0 => holder.wishes.push(Wish::StepDown),
            1 => holder.kill_application(),
            2 => holder.terminate_guard(),
            3 => {
                for server in 0..self.plan.servers {
                    world.cut_client(&holder.name, server, Traffic::Answers, length);
                }
            }
            4 => world.elect(self.rng.usize(..self.plan.servers)),
            // Beside a container a killed guard leaves it to the kubelet of its own to act in time.
            5 if holder.policy.kind != Kind::Signal => holder.kill_guards(),
            6 if holder.policy.kind == Kind::Run => self.stop_guard(&holder, length),
            _ => world.disconnect(&holder.name),
        }
        if self.rng.bool() {
            let pause = self.within(self.t());
            sleep(pause).await;
            self.stage.world.disconnect(&holder.name);
        }
    }

    /// Everything is well again.
    pub(crate) fn end(&mut self) {
        let world = &self.stage.world;
        world.heal();
        if let Some(stopped) = self.stopped.take() {
            world.start(stopped);
        }
        for server in 0..self.plan.servers {
            world.stall(server, Duration::ZERO);
            world.set_lag(server, Duration::from_millis(20));
        }
        for pod in self.pods {
            world.freeze(&pod.name, Duration::ZERO);
            pod.stop_guard(Duration::ZERO);
        }
        self.stage.is_calm.set(true);
        self.stage.say(|| "All is well from now on".to_owned());
    }
}
