//! Faults at random.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_lock::fake::{Happened, Traffic, World};

/// One server that is stopped at most: the others are a majority.
#[derive(Default)]
pub struct Faults {
    stopped: Option<usize>,
    /// Paths of contenders that were taken away by hand, or with their session.
    pub by_hand: BTreeSet<String>,
    pub log: Vec<String>,
}

/// The children of the lock root by sequence number: the names before it are random.
fn contenders(world: &World, root: &str) -> Vec<String> {
    let mut children = world.children(root);
    children.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    children
}

fn up_to(rng: &mut fastrand::Rng, longest: Duration) -> Duration {
    longest.mul_f64(rng.f64())
}

impl Faults {
    /// Lets something go wrong. `root` is the lock root, `names` are the clients.
    pub fn strike(
        &mut self,
        rng: &mut fastrand::Rng,
        world: &World,
        servers: usize,
        root: &str,
        names: &[String],
        t: Duration,
    ) {
        let client = names[rng.usize(..names.len())].as_str();
        let server = rng.usize(..servers);
        let mine = world.server_of(client).unwrap_or(server);
        let length = up_to(rng, t * 2);
        let kind = rng.u8(..16);
        self.log.push(format!(
            "{:?}: fault {kind}, {client}, server {server} or {mine}, {length:?}",
            world.now()
        ));
        match kind {
            0 => world.isolate(client, length),
            1 => {
                let traffic = [Traffic::Requests, Traffic::Answers, Traffic::Both][rng.usize(..3)];
                world.cut_client(client, mine, traffic, length);
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
            8 | 9 => world.disconnect(client),
            10 => world.lose_next_answer(client),
            11 | 12 => world.freeze(client, length),
            13 => world.set_lag(server, up_to(rng, Duration::from_secs(1))),
            14 => self.by_hand(rng, world, root),
            _ => Self::foreign(rng, world, root),
        }
    }

    /// An operator deletes a contender, or ends a session.
    fn by_hand(&mut self, rng: &mut fastrand::Rng, world: &World, root: &str) {
        let children = contenders(world, root);
        let Some(name) = rng.choice(&children) else { return };
        let path = format!("{root}/{name}");
        let Some(node) = world.node(&path) else { return };
        if node.owner == 0 || rng.bool() {
            self.by_hand.insert(path.clone());
            return world.delete(&path);
        }
        for record in world.records() {
            if let Happened::Created { path, session, .. } = record.happened
                && session == node.owner
            {
                self.by_hand.insert(path);
            }
        }
        world.expire(node.owner);
    }

    /// Somebody else's nodes and data where they do not belong.
    fn foreign(rng: &mut fastrand::Rng, world: &World, root: &str) {
        let children = contenders(world, root);
        match (rng.bool(), rng.choice(&children)) {
            (true, Some(name)) => world.set_data(&format!("{root}/{name}"), b"10.0.0.1"),
            _ => {
                if world.node(root).is_some() && !children.iter().any(|name| name == "readme") {
                    world.create(&format!("{root}/readme"), b"\xff");
                }
            }
        }
    }

    /// Everything is well again.
    pub fn end(&mut self, world: &World, servers: usize) {
        world.heal();
        if let Some(stopped) = self.stopped.take() {
            world.start(stopped);
        }
        for server in 0..servers {
            world.stall(server, Duration::ZERO);
            world.set_lag(server, Duration::from_millis(20));
        }
    }
}
