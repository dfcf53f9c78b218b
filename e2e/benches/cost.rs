//! `cargo bench -p lockkeeper-e2e --bench cost`: what held locks cost three servers, how many of them the servers of
//! this machine carry, and what one session for several locks of a pod would save.
//!
//! `--locks=10,100` `--seconds=30` `--knee=1000` `--with-waiters` `--pods=100` `--no-fsync`: see `cost/arguments.rs`.

#[path = "cost/arguments.rs"]
mod arguments;
#[path = "cost/calm.rs"]
mod calm;
#[path = "cost/crowd.rs"]
mod crowd;
#[path = "cost/knee.rs"]
mod knee;
#[path = "cost/meter.rs"]
mod meter;
#[path = "returning/open_files.rs"]
mod open_files;
#[path = "cost/sharing.rs"]
mod sharing;
#[path = "cost/tally.rs"]
mod tally;

use std::time::Duration;

use lockkeeper_lock::{BootInstant, Timing};
use lockkeeper_testbed::{Config, Ensemble};

use arguments::Arguments;

/// Sockets of the clients, and some more.
const OPEN_FILES: u64 = 16_384;
/// No further step of the search begins when the benchmark has run for so long. A step takes about a minute.
const LONGEST: Duration = Duration::from_secs(9 * 60);
/// What ZooKeeper's own script gives a server (`ZK_SERVER_HEAP` in `zkEnv.sh`).
const HEAP_MB: u32 = 1000;

fn main() -> anyhow::Result<()> {
    let began = BootInstant::now();
    let arguments = Arguments::parse()?;
    open_files::allow(OPEN_FILES)?;
    let timing = Timing::new(crowd::SESSION_TIMEOUT);
    // Java as its defaults are, and not as small as in tests; of two equal options the last one counts.
    let mut java_arguments = vec![format!("-Xmx{HEAP_MB}m"), "-XX:TieredStopAtLevel=4".to_owned()];
    if !arguments.no_fsync {
        java_arguments.push("-Dzookeeper.forceSync=yes".to_owned());
    }
    let ensemble = Ensemble::start(Config {
        tick: timing.tick_time,
        java_arguments,
        ..Config::default()
    })?;
    let clients = ensemble.client("clients")?;
    println!(
        "Three servers ({}) and all clients share the {} cores of this machine, and {}.\n\
         T = {:?}, lease duration {:?}, a renewal every {:?}.",
        ensemble.version(0).unwrap_or_default(),
        std::thread::available_parallelism()?,
        match arguments.no_fsync {
            true => "no server waits for a disk",
            false => "one disk, on which each write waits (fsync)",
        },
        timing.session_timeout,
        timing.lease().unwrap_or_default(),
        timing.interval(),
    );
    let short = arguments.hold / 3;
    let calm = calm::measure(&ensemble, &clients, &arguments.locks, short)?;
    if arguments.pods > 0 {
        sharing::measure(&ensemble, &clients, arguments.pods, short)?;
    }
    if arguments.first > 0 {
        let search = knee::Search {
            ensemble: &ensemble,
            clients: &clients,
            with_waiters: arguments.with_waiters,
            hold: arguments.hold,
            calm,
            until: began + LONGEST,
        };
        search.run(arguments.first)?;
    }
    Ok(())
}
