//! A replica of the operator, as a process.

use std::fs::{self, File};
use std::io;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::Context;
use lockkeeper_testbed::eventually::eventually;
use lockkeeper_testbed::{Host, Process};
use rustix::process::{Resource, Rlimit, prlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::binaries;

/// For a host on the same machine.
const CONNECT: Duration = Duration::from_secs(1);

/// How to start a replica.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Its name in the harness.
    pub name: &'a str,
    /// The host on which it runs and listens.
    pub host: &'a Host,
    /// The folder for its log.
    pub directory: &'a Path,
    pub kubeconfig: &'a Path,
    /// Its identity in the ensemble (`--auth-file`).
    pub auth: &'a Path,
    /// How it reaches the ensemble, and all other options.
    pub options: &'a [&'a str],
    /// Most memory that it may have, in bytes.
    pub memory: Option<u64>,
}

/// A replica of the operator. Drop kills it.
#[derive(Debug)]
pub struct Operator {
    /// For signals, and its end.
    pub process: Process,
    /// Its name in the harness.
    pub name: String,
    pub webhook: SocketAddrV4,
    /// Its metrics and probes.
    pub pages: Pages,
    log: PathBuf,
}

/// The port of an operator with its metrics and probes.
#[derive(Clone, Debug)]
pub struct Pages {
    host: Host,
    address: SocketAddrV4,
}

impl Operator {
    /// Starts it, without waiting for it.
    ///
    /// # Errors
    /// When it cannot be built or started.
    pub fn spawn(launch: &Launch<'_>) -> anyhow::Result<Self> {
        let Launch {
            name,
            host,
            directory,
            kubeconfig,
            auth,
            options,
            memory,
        } = *launch;
        let (admin, webhook) = (free_address(host)?, free_address(host)?);
        let log = directory.join(format!("{name}.log"));
        let mut command = Command::new(binaries::operator()?);
        command
            .args(options)
            .arg("--auth-file")
            .arg(auth)
            .args(["--admin-listen", &admin.to_string()])
            .args(["--webhook-listen", &webhook.to_string()])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::null())
            .stderr(File::create(&log).with_context(|| format!("cannot write {}", log.display()))?);
        let process = host.spawn(name, command)?;
        if memory.is_some() {
            let limit = Rlimit {
                current: memory,
                maximum: memory,
            };
            prlimit(Some(process.pid()), Resource::Data, limit)?;
        }
        Ok(Self {
            process,
            name: name.to_owned(),
            webhook,
            pages: Pages {
                host: host.clone(),
                address: admin,
            },
            log,
        })
    }

    /// Starts it, and waits until it reports that it is ready.
    ///
    /// # Panics
    /// When it cannot be started, or ends, with its log.
    pub async fn start(launch: &Launch<'_>) -> Self {
        let mut operator = Self::spawn(launch).unwrap();
        eventually("the operator is ready", async || {
            assert!(operator.process.is_running(), "{}", operator.log());
            operator.pages.is_ready().await.then_some(())
        })
        .await;
        operator
    }

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// A connection to its webhooks.
    ///
    /// # Errors
    /// When it does not listen.
    pub fn connect(&self) -> io::Result<TcpStream> {
        self.pages.host.connect(self.webhook, CONNECT)
    }
}

impl Pages {
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    pub async fn is_ready(&self) -> bool {
        let answer = self.ask("/readyz").await.unwrap_or_default();
        answer.starts_with("HTTP/1.1 200")
    }

    pub async fn is_leading(&self) -> bool {
        let metrics = self.ask("/metrics").await.unwrap_or_default();
        metrics.contains("lockkeeper_operator_leading 1")
    }

    /// The sum of the lines of its metrics that begin with `metric`.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn measured(&self, metric: &str) -> f64 {
        let page = self.ask("/metrics").await.expect("the operator answers");
        let lines = page.lines().filter(|line| line.starts_with(metric));
        lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    /// Sends it an HTTP request, and returns the whole answer, if there is one.
    pub async fn ask(&self, path: &str) -> Option<String> {
        let stream = self.host.connect(self.address, CONNECT).ok()?;
        stream.set_nonblocking(true).ok()?;
        let mut stream = tokio::net::TcpStream::from_std(stream).ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }
}

/// A free address of a host, with a port outside of the range from which the kernel chooses
/// (`net.ipv4.ip_local_port_range` begins at 32768), and that no operator of this process had before.
fn free_address(host: &Host) -> io::Result<SocketAddrV4> {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    loop {
        let address = SocketAddrV4::new(host.address(), NEXT.fetch_add(1, Ordering::Relaxed));
        match host.run(|| TcpListener::bind(address))? {
            Ok(_) => return Ok(address),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && address.port() < 30_000 => {}
            Err(error) => return Err(error),
        }
    }
}
