//! Rounds on one ensemble: many locks at a time, each with a queue and a record of its own.

use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::{Config, Ensemble, Host};

use crate::contender::{self, Fate, Options};
use crate::faults::{self, Plan};
use crate::record::Record;
use crate::times;
use crate::trace::Trace;

/// Machines of contenders: the most that contend for one lock.
const MACHINES: usize = 4;

/// How long a round is recorded: long enough for some faults in a row, each of which takes up to three L.
const TIME: Duration = Duration::from_secs(8);

/// For the clients to begin at one moment.
const LEAD: Duration = Duration::from_millis(300);

/// Three servers, and the machines of the contenders.
pub struct Rounds {
    ensemble: Ensemble,
    machines: Vec<Host>,
    random: Rng,
    rounds: usize,
}

impl Rounds {
    /// Starts the servers. All choices come from `seed`; the machine's own timing differs each time.
    ///
    /// # Errors
    /// When they do not start, or this machine cannot cut connections
    /// ([`Unsupported`](lockkeeper_testbed::Unsupported)).
    pub fn start(seed: u64) -> anyhow::Result<Self> {
        let ensemble = Ensemble::start(Config::default())?;
        ensemble.network().can_cut()?;
        let machines = (0..MACHINES)
            .map(|machine| ensemble.client(format!("machine {machine}")))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            ensemble,
            machines,
            random: Rng::with_seed(seed),
            rounds: 0,
        })
    }

    /// One round with so many locks: the trace of each.
    ///
    /// # Errors
    /// When a lock or the servers fail otherwise than planned.
    pub fn round(&mut self, locks: usize) -> anyhow::Result<Vec<Trace>> {
        self.ensemble.wait_ready()?;
        self.rounds += 1;
        let begin = BootInstant::now() + LEAD;
        let plans = Plan::any(&mut self.random, TIME, MACHINES);
        let records: Vec<_> = (0..locks).map(|_| Record::default()).collect();
        let mut lives: Vec<Vec<Options>> = vec![Vec::new(); MACHINES];
        for (lock, record) in records.iter().enumerate() {
            let contenders = self.random.usize(2..=MACHINES);
            let mut machines: Vec<_> = (0..MACHINES).collect();
            self.random.shuffle(&mut machines);
            for (process, machine) in machines.into_iter().take(contenders).enumerate() {
                let options = self.life(lock, record, process, begin);
                lives[machine].push(options);
            }
        }
        std::thread::scope(|scope| {
            let (ensemble, machines) = (&self.ensemble, &self.machines);
            let clients: Vec<_> = machines
                .iter()
                .zip(lives)
                .map(|(machine, lives)| scope.spawn(move || block_on(machine, || live(lives))))
                .collect();
            let injected = faults::inject(ensemble, machines, &plans, begin);
            for client in clients {
                client.join().expect("no panic")??;
            }
            injected
        })
        .with_context(|| format!("round {} with {plans:?}", self.rounds))?;
        records
            .iter()
            .map(|record| Trace::of(&record.finish(), times::LEASE))
            .collect()
    }

    fn life(&mut self, lock: usize, record: &Record, process: usize, begin: BootInstant) -> Options {
        let random = &mut self.random;
        let mut fates = Vec::new();
        let mut after = times::LEASE.mul_f64(1.0 + 4.0 * random.f64());
        while after < TIME {
            fates.push((begin + after, Fate::any(random)));
            after += times::LEASE.mul_f64(1.0 + 4.0 * random.f64());
        }
        Options {
            connect: self.ensemble.connect_string(),
            root: format!("/conformance/{}-{lock}", self.rounds),
            pen: record.pen(process),
            begin: begin + times::LEASE.mul_f64(0.5 * random.f64()),
            end: begin + TIME,
            fates,
        }
    }
}

/// All contenders of one machine.
async fn live(lives: Vec<Options>) -> anyhow::Result<()> {
    let lives: Vec<_> = lives
        .into_iter()
        .map(|options| tokio::spawn(contender::live(options)))
        .collect();
    for life in lives {
        life.await??;
    }
    Ok(())
}
