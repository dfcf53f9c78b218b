//! Counters of the servers, of this process and of the machine, and what they counted between two moments.

use std::fs;
use std::time::Duration;

use anyhow::Context as _;
use lockkeeper_lock::BootInstant;
use lockkeeper_testbed::process::{cpu_time, of_ticks, resident_memory, wait_for};
use lockkeeper_testbed::{Ensemble, Host};
use rustix::process::Pid;

/// How long a busy server may take to report its counters.
const PATIENCE: Duration = Duration::from_secs(20);

/// Requests to each server that are our own between two readings: the `srvr` of the first, and the `mntr` of the second.
const WORDS: f64 = 2.0;

/// All counters at one moment.
struct Counters {
    at: BootInstant,
    /// Number of the leader's last transaction.
    zxid: u64,
    /// Requests that clients sent to all servers, pings included.
    requests: f64,
    /// Bytes over the clients' cable, and over the cables of all servers, both ways.
    bytes: Option<[u64; 2]>,
    /// Times that a log was written to its disk, and milliseconds that it took, of all servers.
    syncs: [f64; 2],
    cpu_of_servers: Duration,
    cpu_of_client: Duration,
    /// Of all programs of the machine.
    cpu_of_all: Duration,
}

pub struct Meter<'a> {
    ensemble: &'a Ensemble,
    clients: &'a Host,
    began: Counters,
}

/// What an interval took.
pub struct Cost {
    /// Transactions of the ensemble per second.
    pub writes: f64,
    /// Other requests per second: reads, and pings if there are any.
    pub reads: f64,
    /// Bytes between clients and servers per second, with the headers of TCP, IP and Ethernet. `None` without network
    /// namespaces.
    pub bytes: Option<f64>,
    /// The same between servers.
    pub bytes_between_servers: Option<f64>,
    /// Times per second that one server waited for its disk.
    pub syncs: f64,
    /// For how long each time.
    pub sync: Duration,
    /// CPU time of all servers, in per cent of one core.
    pub servers: f64,
    /// CPU time of this process, in per cent of one core.
    pub client: f64,
    /// CPU time of other programs and of the kernel by itself, in per cent of one core.
    pub others: f64,
    /// Resident memory of one server at the end, in bytes: the mean.
    pub memory: u64,
}

impl Cost {
    /// The columns of tables about CPU time and memory.
    pub fn of_processors_and_memory(&self) -> String {
        format!(
            "{:.1} | {:.1} | {:.0} | {} MB",
            self.servers,
            self.client,
            self.others,
            self.memory / 1_000_000
        )
    }
}

impl<'a> Meter<'a> {
    pub fn start(ensemble: &'a Ensemble, clients: &'a Host) -> anyhow::Result<Self> {
        Ok(Self {
            ensemble,
            clients,
            began: Counters::read(ensemble, clients)?,
        })
    }

    /// What was counted since.
    pub fn stop(&self) -> anyhow::Result<Cost> {
        let (began, ended) = (&self.began, Counters::read(self.ensemble, self.clients)?);
        let seconds = (ended.at - began.at).as_secs_f64();
        let writes = ended.zxid.saturating_sub(began.zxid) as f64 / seconds;
        let requests = (ended.requests - began.requests - WORDS * self.ensemble.len() as f64) / seconds;
        let [of_clients, of_servers] = match (began.bytes, ended.bytes) {
            (Some(began), Some(ended)) => {
                [0, 1].map(|at| Some(ended[at].saturating_sub(began[at]) as f64 / seconds))
            }
            _ => [None, None],
        };
        let syncs = ended.syncs[0] - began.syncs[0];
        let millis = ended.syncs[1] - began.syncs[1];
        let share =
            |began: Duration, ended: Duration| ended.saturating_sub(began).as_secs_f64() / seconds * 100.0;
        let servers = share(began.cpu_of_servers, ended.cpu_of_servers);
        let client = share(began.cpu_of_client, ended.cpu_of_client);
        let all = share(began.cpu_of_all, ended.cpu_of_all);
        Ok(Cost {
            writes,
            reads: (requests - writes).max(0.0),
            bytes: of_clients,
            // What passes between two servers passes both cables.
            bytes_between_servers: of_servers
                .zip(of_clients)
                .map(|(servers, clients)| (servers - clients).max(0.0) / 2.0),
            syncs: syncs / seconds / self.ensemble.len() as f64,
            sync: Duration::from_secs_f64((millis / syncs.max(1.0) / 1e3).max(0.0)),
            servers,
            client,
            others: (all - servers - client).max(0.0),
            memory: memory(self.ensemble)?,
        })
    }
}

impl Counters {
    fn read(ensemble: &Ensemble, clients: &Host) -> anyhow::Result<Self> {
        let mut requests = 0.0;
        let mut syncs = [0.0; 2];
        let mut zxid = 0;
        let mut cpu_of_servers = Duration::ZERO;
        let mut server_bytes = Some(0);
        for server in 0..ensemble.len() {
            let mntr = wait_for(PATIENCE, || ensemble.ask(server, "mntr"))
                .with_context(|| format!("server {server} does not report its counters"))?;
            requests += value_of(&mntr, "zk_packets_received").context("no zk_packets_received")?;
            for (sum, key) in syncs.iter_mut().zip(["zk_cnt_fsynctime", "zk_sum_fsynctime"]) {
                *sum += value_of(&mntr, key).unwrap_or_default();
            }
            zxid = zxid.max(ensemble.zxid(server).unwrap_or_default());
            cpu_of_servers += cpu_time(pid(ensemble, server)?)?;
            server_bytes = bytes(ensemble, ensemble.server(server))?
                .zip(server_bytes)
                .map(|(one, all)| one + all);
        }
        Ok(Self {
            at: BootInstant::now(),
            zxid,
            requests,
            bytes: bytes(ensemble, clients)?
                .zip(server_bytes)
                .map(|(clients, servers)| [clients, servers]),
            syncs,
            cpu_of_servers,
            cpu_of_client: cpu_time(rustix::process::getpid())?,
            cpu_of_all: cpu_of_all()?,
        })
    }
}

pub fn value_of(mntr: &str, key: &str) -> Option<f64> {
    let mut lines = mntr.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('\t'))?;
    value.trim().parse().ok()
}

fn pid(ensemble: &Ensemble, server: usize) -> anyhow::Result<Pid> {
    ensemble.pid(server).context("a server has ended")
}

/// Resident memory of one server, in bytes.
fn memory(ensemble: &Ensemble) -> anyhow::Result<u64> {
    let mut all = 0;
    for server in 0..ensemble.len() {
        all += resident_memory(pid(ensemble, server)?)?;
    }
    Ok(all / ensemble.len() as u64)
}

/// Time that all cores of the machine worked (`proc_stat(5)`).
fn cpu_of_all() -> anyhow::Result<Duration> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu "));
    let fields = line.context("no cpu in /proc/stat")?.split_whitespace();
    let ticks: Result<Vec<u64>, _> = fields.map(str::parse).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; the rest counts guests a second time.
    let ticks = ticks?;
    let working = [0, 1, 2, 5, 6].iter().filter_map(|&at| ticks.get(at)).sum();
    Ok(of_ticks(working))
}

/// Bytes over the cable of a host, both ways; `None` where hosts are addresses of the loopback device.
fn bytes(ensemble: &Ensemble, host: &Host) -> anyhow::Result<Option<u64>> {
    if ensemble.network().can_cut().is_err() {
        return Ok(None);
    }
    let devices = host.run(|| fs::read_to_string("/proc/thread-self/net/dev"))??;
    let line = devices.lines().find_map(|line| line.trim().strip_prefix("eth0:"));
    let counts: Vec<u64> = line
        .context("the host has no cable")?
        .split_whitespace()
        .filter_map(|count| count.parse().ok())
        .collect();
    // Eight counters of what was received, then what was sent; each begins with the bytes.
    Ok(Some(counts[0] + counts[8]))
}
