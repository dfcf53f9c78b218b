//! Machines with a real systemd, each the first process of namespaces of its own on a [`Host`].
//!
//! A machine has this machine's `/usr`, beside which it may have files of its own, and a root with nothing but the accounts
//! and libraries of this one. systemd starts no program there but its journal: what manages hardware, settings of the
//! kernel and logins is masked. The control groups are those of version 2, below one group of this machine.

mod group;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};

use self::group::Group;
use crate::process::{Process, wait_for};
use crate::{Host, Unsupported};

/// Starts a machine; see there.
const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/machine/boot");

/// The program that every machine starts first.
const SYSTEMD: &str = "/lib/systemd/systemd";

/// For a start.
const BOUND: Duration = Duration::from_secs(60);

/// Of this machine's root: where `/usr` has what programs expect elsewhere.
const LINKS: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Of this machine's `/etc`: accounts, libraries, and names of programs.
const SHARED: [&str; 5] = ["passwd", "group", "nsswitch.conf", "ld.so.cache", "alternatives"];

/// With what the names of Java's own files there begin.
const JAVA: &str = "java-";

/// Folders of an empty root.
const FOLDERS: [&str; 13] = [
    "proc",
    "sys",
    "dev",
    "run",
    "tmp",
    "usr",
    "var/log",
    "var/lib",
    "root",
    "home",
    "old",
    "etc/systemd/system",
    "var/tmp",
];

/// What manages hardware, the kernel's settings, networks and logins.
const MASKED: [&str; 26] = [
    "systemd-udevd.service",
    "systemd-udevd-kernel.socket",
    "systemd-udevd-control.socket",
    "systemd-udev-trigger.service",
    "systemd-modules-load.service",
    "systemd-sysctl.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-logind.service",
    "systemd-pstore.service",
    "systemd-random-seed.service",
    "systemd-binfmt.service",
    "systemd-firstboot.service",
    "proc-sys-fs-binfmt_misc.automount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "sys-kernel-config.mount",
    "sys-fs-fuse-connections.mount",
    "dev-hugepages.mount",
    "dev-mqueue.mount",
    "getty.target",
    "console-getty.service",
    "dbus.service",
    "dbus.socket",
];

/// A machine, which runs or is off. Drop kills it; its files are in a folder of the caller.
#[derive(Debug)]
pub struct Machine {
    // Fields are dropped in this order: processes, then their group.
    running: Option<Process>,
    group: Group,
    host: Host,
    name: String,
    folder: PathBuf,
}

impl Machine {
    /// Makes a machine that is off, with its files in `folder`.
    ///
    /// # Errors
    /// With [`Unsupported`] if this machine can start no systemd, or when a file cannot be made.
    pub fn new(host: &Host, name: &str, folder: &Path) -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(Unsupported::new("only root can start a systemd of its own").into());
        }
        if !Path::new(SYSTEMD).exists() {
            return Err(Unsupported::new("systemd is not installed").into());
        }
        let machine = Self {
            running: None,
            group: Group::make(name)?,
            host: host.clone(),
            name: name.to_owned(),
            folder: folder.to_owned(),
        };
        machine.furnish().context("cannot make the files of a machine")?;
        Ok(machine)
    }

    /// The files of a new machine.
    fn furnish(&self) -> anyhow::Result<()> {
        let root = self.root();
        for folder in FOLDERS {
            fs::create_dir_all(root.join(folder))?;
        }
        for folder in [self.usr(), self.folder.join("work")] {
            fs::create_dir_all(folder)?;
        }
        for link in LINKS {
            if let Ok(target) = fs::read_link(Path::new("/").join(link)) {
                symlink(target, root.join(link))?;
            }
        }
        for entry in fs::read_dir("/etc")? {
            let file = entry?;
            let name = file.file_name();
            let name = name.to_string_lossy();
            if SHARED.contains(&&*name) || name.starts_with(JAVA) {
                let copied = Command::new("cp")
                    .arg("--archive")
                    .arg(file.path())
                    .arg(root.join("etc"))
                    .status()?;
                ensure!(copied.success(), "cannot copy /etc/{name}");
            }
        }
        let id = fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', "");
        fs::write(root.join("etc/machine-id"), id)?;
        fs::write(root.join("etc/hostname"), format!("{}\n", self.name))?;
        for unit in MASKED {
            symlink("/dev/null", root.join("etc/systemd/system").join(unit))?;
        }
        Ok(())
    }

    /// Its root directory, without what is mounted there.
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// What it has in `/usr` beside the files of this machine. Write there only while it is off.
    pub fn usr(&self) -> PathBuf {
        self.folder.join("usr")
    }

    /// Its place in the network.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The file with the number of a process in its namespaces while it runs; see [`ENTER`].
    pub fn entrance(&self) -> PathBuf {
        self.folder.join("pid")
    }

    /// Starts it, and waits until systemd has started all its units.
    ///
    /// # Errors
    /// When that fails.
    pub fn boot(&mut self) -> anyhow::Result<()> {
        let entered = self.folder.join("entered");
        fs::write(&entered, "")?;
        self.group.create()?;
        let console = self.folder.join("console");
        let mut command = Command::new(BOOT);
        command
            .arg(self.group.path())
            .arg(&self.folder)
            .arg(&self.name)
            .stdin(Stdio::null())
            .stdout(File::create(&console)?)
            .stderr(File::options().append(true).open(&console)?);
        let mut process = self.host.spawn(format!("systemd of {}", self.name), command)?;
        // Before that, a command would see the files, and the systemd, of this machine.
        let is_in = wait_for(BOUND, || {
            let is_in = fs::read_to_string(&entered).is_ok_and(|line| !line.is_empty());
            (is_in || !process.is_running()).then_some(is_in)
        });
        let said = || fs::read_to_string(&console).unwrap_or_default();
        ensure!(is_in == Some(true), "{} has not started: {}", self.name, said());
        fs::write(self.entrance(), process.pid().as_raw_pid().to_string())?;
        self.running = Some(process);
        // Until systemd listens, it fails. A unit of another package that this machine has in /usr may fail, too: `degraded`.
        let is_up = wait_for(BOUND, || {
            let state = self.run("systemctl is-system-running --wait").ok()?;
            let is_up = ["running", "degraded"].iter().any(|up| state.starts_with(up));
            is_up.then_some(())
        });
        ensure!(
            is_up.is_some(),
            "{} has not started within {BOUND:?}: {}",
            self.name,
            said()
        );
        Ok(())
    }

    /// All its processes end at once, as when its power is lost. The network still tells the other ends of their
    /// connections: cut it off before, if nothing may.
    ///
    /// # Errors
    /// When a process is left.
    pub fn crash(&mut self) -> anyhow::Result<()> {
        let _ = fs::remove_file(self.entrance());
        self.group.kill()?;
        self.running = None;
        self.group.remove()
    }

    /// What a command of a shell on it prints on its standard output, whatever its exit code.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(&self, command: &str) -> anyhow::Result<String> {
        let output = Command::new("sh")
            .args(["-c", ENTER, "sh"])
            .arg(self.entrance())
            .arg(command)
            .stdin(Stdio::null())
            .output()?;
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            said += &String::from_utf8_lossy(&output.stderr);
        }
        Ok(said)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // The next harness removes what cannot be removed now.
        let _ = self.crash();
    }
}

/// Executes a command of a shell on a machine, as its root: `sh -c ENTER sh ENTRANCE COMMAND`. It ends with 255 if the
/// machine is off, as `ssh` does.
pub const ENTER: &str = r#"
pid=$(cat "$1" 2>/dev/null) && [ -e "/proc/$pid" ] || exit 255
cd /
exec nsenter --target "$pid" --mount --uts --ipc --net --cgroup --pid="/proc/$pid/ns/pid_for_children" -- \
    env -i HOME=/root LC_ALL=C.UTF-8 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin bash -c "$2"
"#;
