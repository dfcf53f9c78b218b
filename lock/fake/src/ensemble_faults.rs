//! Faults of an ensemble and its network by their numbers, for random histories.

use std::time::Duration;

use fastrand::Rng;

use crate::faults::Traffic;
use crate::world::World;

/// Faults of the ensemble and its network. At most one server is stopped: the others are a majority.
#[derive(Debug, Default)]
pub struct EnsembleFaults {
    stopped: Option<usize>,
}

impl EnsembleFaults {
    /// Causes the fault with this number; any above 10 is a lag. It affects `client`'s connections, the server that it
    /// is connected to, the leader or `server`.
    pub fn strike(
        &mut self,
        world: &World,
        rng: &mut Rng,
        kind: u8,
        client: &str,
        server: usize,
        length: Duration,
    ) {
        let mine = world.server_of(client).unwrap_or(server);
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
            _ => world.set_lag(server, length / 12),
        }
    }

    /// Ends all faults of the ensemble and its network.
    pub fn end(&mut self, world: &World) {
        world.heal();
        if let Some(stopped) = self.stopped.take() {
            world.start(stopped);
        }
        let servers = world.shared.state().servers.len();
        for server in 0..servers {
            world.stall(server, Duration::ZERO);
            world.set_lag(server, Duration::from_millis(20));
        }
    }
}
