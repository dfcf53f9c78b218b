//! The program for arm64 on real servers: under qemu, where this machine is another one.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Pod;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, faults};

use crate::{VERSION, dist, has, machine_of, output, said, words};

/// Generous: the machine may be busy, and the program is translated.
const BOUND: Duration = Duration::from_secs(120);

/// What the holder asks for, and the same as a duration: the servers keep its place at least for so long.
const SESSION: &str = "8s";
const LEASE: Duration = Duration::from_secs(8);

/// Makes the kernel start programs for arm64 by qemu, but only for what `"$@"` starts: Linux 6.7 and newer have such a list
/// for each user namespace. The numbers are the beginning of a file for arm64, and the bits of it that count (qemu's
/// `scripts/qemu-binfmt-conf.sh`). F: qemu is opened now, so that each root directory can do without it.
const UNDER_QEMU: &str = r#"
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
head='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
bits='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf %s ":arm64:M::$head:$bits:$(command -v qemu-aarch64-static):F" >/proc/sys/fs/binfmt_misc/register
exec "$@"
"#;

/// The words that start a program for arm64; `None` if this machine cannot, and the test is skipped.
#[track_caller]
fn start(program: &Path) -> Option<Vec<OsString>> {
    assert_eq!(machine_of(program), "arm64");
    if cfg!(target_arch = "aarch64") {
        return Some(vec![program.into()]);
    }
    if !has("qemu-aarch64-static") {
        return None;
    }
    let prefix = words![
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-ec",
        UNDER_QEMU,
        "sh"
    ];
    let tried = output(&prefix[0], prefix[1..].iter().cloned().chain(["true".into()]));
    if !tried.status.success() {
        let why = String::from_utf8_lossy(&tried.stderr);
        lockkeeper_skip::skip(format_args!(
            "the kernel has no list of programs' interpreters for a user namespace (Linux 6.7): {}",
            why.trim()
        ));
        return None;
    }
    Some(prefix.into_iter().chain([program.into()]).collect())
}

#[test]
fn every_program_for_arm64_says_its_version() {
    let Some(dist) = dist() else { return };
    for program in crate::PROGRAMS {
        let binary = dist.join(format!("{program}_{VERSION}_linux_arm64"));
        let Some(words) = start(&binary) else { return };
        let told = said(&words[0], words[1..].iter().cloned().chain(["--version".into()]));
        assert!(
            told.starts_with(&format!("{program} {VERSION} (commit ")),
            "{told}"
        );
    }
}

/// `lockkeeper run` needs a kernel of its own machine: qemu knows no `PR_SET_CHILD_SUBREAPER`. The guard of a pod is the
/// first process of its container, and needs no such call.
#[test]
fn on_arm64_an_application_runs_under_the_lock_and_is_killed_in_time_when_the_servers_stop_answering() {
    let Some(dist) = dist() else { return };
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("only root may make a PID namespace");
    }
    let Some(lockkeeper) = start(&dist.join(format!("lockkeeper_{VERSION}_linux_arm64"))) else {
        return;
    };
    let ensemble = Ensemble::start(Config::default()).unwrap();
    let lock = "/locks/arm64";
    let mut holder = Pod::empty(&ensemble, "holder");
    holder.started_by = lockkeeper;
    holder.start_sidecar(&ensemble, lock, &["--session-timeout", SESSION]);
    // What ignores SIGTERM has to be killed.
    holder.start_container("holder", &["--ignore-sigterm"]);
    let token = holder.wait_until_it_runs(0);
    let guarded = std::fs::read_link(format!("/proc/{}/exe", holder.guard())).unwrap();
    println!("the guard is run by {}", guarded.display());
    // Longer than a lease that nobody renews.
    holder.goes_on_for(2 * LEASE);

    let servers: Vec<_> = (0..ensemble.len())
        .filter_map(|server| ensemble.pid(server))
        .collect();
    assert_eq!(servers.len(), ensemble.len());
    for &server in &servers {
        faults::stop(server).unwrap();
    }
    let silent = BootInstant::now();
    let is_gone = || {
        let last = holder.records().last()?.at;
        (BootInstant::now() - last > Duration::from_secs(1)).then_some(last)
    };
    let last = wait_for(BOUND, is_gone).unwrap_or_else(|| panic!("it is not killed: {}", holder.said()));
    println!("killed {:?} after the servers fell silent", last - silent);
    assert!(silent < last, "{}", holder.said());
    // The next one may have the lock so long after the last renewal, which was before.
    assert!(last < silent + LEASE, "{}", holder.said());

    // The next one in the queue is a program for this machine.
    for &server in &servers {
        faults::resume(server).unwrap();
    }
    let next = Pod::start(&ensemble, "next", lock);
    drop(holder.container.take());
    drop(holder.sidecar.take());
    next.wait_until_it_runs(token);
    let records = [holder.records(), next.records()].concat();
    let report = check(&records, Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() >= 2, "{report}");
}
