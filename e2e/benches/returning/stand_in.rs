//! What lets the threads of one process stand for thousands of pods: ports, and processors of their own.

use std::fs;

use anyhow::Context as _;
use lockkeeper_testbed::Host;
use rustix::process::setpriority_process;

/// Lets the programs on `host` use nearly all ports for connections that they open, and use one again a second
/// after it was closed. All contenders share one address here, and pods do not: with the kernel's defaults the
/// ports run out, and then each `connect` searches all of them.
///
/// # Errors
/// When the kernel does not take the settings.
pub fn allow_ports(host: &Host) -> anyhow::Result<()> {
    let settings = [("ip_local_port_range", "1024 65535"), ("tcp_tw_reuse", "1")];
    for (name, value) in settings {
        host.run(|| fs::write(format!("/proc/sys/net/ipv4/{name}"), value))?
            .with_context(|| format!("setting net.ipv4.{name} to {value}"))?;
    }
    Ok(())
}

/// Gives this thread a tenth of the time of others that want the same processor. The waiters of other pods have
/// processors of their own; here they would take the server's and the holders'.
///
/// # Errors
/// When the kernel refuses.
pub fn step_back() -> anyhow::Result<()> {
    // The kernel's call is about one thread, although POSIX says "process" (setpriority(2), "C library/kernel
    // differences").
    setpriority_process(None, 10).context("giving way to other threads")
}
