//! Random faults.

use std::collections::BTreeSet;
use std::time::Duration;

use lockkeeper_fake::{EnsembleFaults, Happened, World};

#[derive(Default)]
pub struct Faults {
    pub ensemble: EnsembleFaults,
    /// Paths of contenders that were deleted by hand, or with their session.
    pub by_hand: BTreeSet<String>,
    pub log: Vec<String>,
}

/// The children of the lock root by sequence number: the names before it are random.
fn contenders(world: &World, root: &str) -> Vec<String> {
    let mut children = world.children(root);
    children.sort_by_key(|name| name.rsplit('-').next().map(str::to_owned));
    children
}

impl Faults {
    /// Causes a fault. `root` is the lock root, `names` are the clients.
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
        let length = (t * 2).mul_f64(rng.f64());
        let kind = rng.u8(..16);
        self.log.push(format!(
            "{:?}: fault {kind}, {client}, server {server} or {:?}, {length:?}",
            world.now(),
            world.server_of(client)
        ));
        match kind {
            11 | 12 => world.freeze(client, length),
            14 => self.by_hand(rng, world, root),
            15 => Self::foreign(rng, world, root),
            _ => self.ensemble.strike(world, rng, kind, client, server, length),
        }
    }

    /// A user deletes a contender, or ends a session.
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

    /// A user asks a contender to step down, in place of all that the control node holds.
    pub fn ask_to_yield(&mut self, rng: &mut fastrand::Rng, world: &World, root: &str) {
        let (children, control) = (contenders(world, root), format!("{root}-control"));
        let Some(name) = rng.choice(&children) else { return };
        if world.node(&control).is_some() {
            self.log
                .push(format!("{:?}: asked to yield: {name}", world.now()));
            let asked = format!(
                r#"{{"v":1,"yield":{{"id":"{}","contenders":["{name}"]}}}}"#,
                rng.u64(..)
            );
            world.set_data(&control, asked.as_bytes());
        }
    }

    /// Another client writes nodes and data where they do not belong.
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
}
