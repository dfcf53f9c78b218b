//! A replica of the operator, as a process.

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::time::Duration;

use lockkeeper_e2e::{Host, Process};

/// A replica of the operator, on the host of the control plane.
pub struct Operator {
    pub process: Process,
    pub name: String,
    pub host: Host,
    pub admin: SocketAddrV4,
    pub webhook: SocketAddrV4,
    pub log: PathBuf,
}

impl Operator {
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub fn is_ready(&self) -> bool {
        self.ask("/readyz")
            .is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// The sum of a metric's lines that begin with `metric`.
    pub fn measured(&self, metric: &str) -> f64 {
        let page = self.ask("/metrics").unwrap();
        let lines = page.lines().filter(|line| line.starts_with(metric));
        lines
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .sum()
    }

    fn ask(&self, path: &str) -> std::io::Result<String> {
        let mut stream = self.host.connect(self.admin, Duration::from_secs(1))?;
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}
