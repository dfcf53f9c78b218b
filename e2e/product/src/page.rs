//! `kubectl lockkeeper ui` as a process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;

use crate::binaries;

/// The page's server. Drop ends it.
#[derive(Debug)]
pub struct Page {
    process: Child,
    url: String,
}

impl Page {
    /// Starts it for the locks of a namespace, and waits until it tells its address.
    ///
    /// # Errors
    /// When it cannot be built or started, or tells none.
    pub fn serve(kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let mut process = Command::new(binaries::plugin()?)
            .args(["ui", "--namespace", namespace, "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the plug-in")?;
        let output = process.stdout.take().context("the command has a pipe")?;
        let mut first = String::new();
        BufReader::new(output).read_line(&mut first)?;
        let (_, url) = first.trim_end().split_once(": ").context("it tells no address")?;
        Ok(Self {
            process,
            url: url.to_owned(),
        })
    }

    /// The page's address, with its key.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
