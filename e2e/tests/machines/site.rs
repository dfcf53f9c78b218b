//! Three machines as the page has them after its first two steps: with a server of ZooKeeper on each, and the package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use lockkeeper_documents::{read, root};
use lockkeeper_product::binaries;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble, Machine, Unsupported, java};

/// Generous: this machine may be busy.
pub const BOUND: Duration = Duration::from_secs(60);

/// The names of the machines on the page, in the order of their servers.
const NAMES: [&str; 3] = ["m1", "m2", "m3"];

/// ZooKeeper's own shell, where Debian has it.
const ZKCLI: &str =
    "#!/bin/sh\nexec java -cp '/usr/share/java/*' org.apache.zookeeper.ZooKeeperMain \"$@\"\n";

/// One site at a time: machines start many programs.
static TURN: Mutex<()> = Mutex::new(());

pub struct Site {
    // Fields are dropped in this order: machines, then the servers with their network and all files.
    machines: Vec<Machine>,
    pub ensemble: Ensemble,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// Machines that run, all three; `None` if the test is skipped, since this machine can have none.
    #[track_caller]
    pub fn start() -> Option<Self> {
        Self::with(NAMES.len())
    }

    /// The same with the servers of all three, but only the first one or two machines.
    #[track_caller]
    pub fn with(machines: usize) -> Option<Self> {
        Unsupported::or_skip(Self::try_start(machines))
    }

    fn try_start(count: usize) -> anyhow::Result<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let ensemble = Ensemble::start(Config {
            // As in the page's configuration.
            tick: Duration::from_secs(2),
            ..Config::default()
        })?;
        ensemble.network().can_cut()?;
        let hosts: String = (0..NAMES.len())
            .map(|server| format!("{} {}\n", ensemble.address(server).ip(), NAMES[server]))
            .collect();
        let mut machines = Vec::new();
        for (server, name) in NAMES.into_iter().enumerate().take(count) {
            let mut machine = Machine::new(ensemble.server(server), name, &ensemble.directory().join(name))?;
            fs::write(
                machine.root().join("etc/hosts"),
                format!("127.0.0.1 localhost\n{hosts}"),
            )?;
            install(&machine)?;
            machine.boot()?;
            machines.push(machine);
        }
        Ok(Self {
            machines,
            ensemble,
            _turn: turn,
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        NAMES.into_iter().take(self.machines.len())
    }

    pub fn machine(&self, name: &str) -> &Machine {
        &self.machines[place(name)]
    }

    /// What a command prints on a machine, without the end of the last line.
    pub fn on(&self, name: &str, command: &str) -> String {
        self.machine(name).run(command).unwrap().trim_end().to_owned()
    }

    /// Whether a command succeeds on a machine.
    pub fn is(&self, name: &str, command: &str) -> bool {
        self.on(name, &format!("if {command} >/dev/null 2>&1; then echo yes; fi")) == "yes"
    }

    /// Waits until a command succeeds on a machine.
    #[track_caller]
    pub fn wait_until(&self, name: &str, command: &str) {
        let is_so = wait_for(BOUND, || self.is(name, command).then_some(()));
        assert!(
            is_so.is_some(),
            "{command} does not succeed on {name}: {}",
            self.on(name, "journalctl")
        );
    }

    /// Writes a file on a machine.
    pub fn write(&self, name: &str, file: &str, text: &str) {
        let place = self.machine(name).root().join(file.trim_start_matches('/'));
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(&place, text).unwrap();
    }

    /// Tells the units of a machine where the servers are.
    pub fn name_servers(&self, name: &str) {
        let connect = "LOCKKEEPER_CONNECT=m1:2181,m2:2181,m3:2181\n";
        self.write(name, "/etc/lockkeeper/defaults.env", connect);
    }

    /// Gives a unit of a machine a drop-in.
    pub fn drop_in(&self, name: &str, unit: &str, text: &str) {
        self.write(name, &format!("/etc/systemd/system/{unit}.d/own.conf"), text);
        assert_eq!(self.on(name, "systemctl daemon-reload"), "");
    }

    /// The power of a machine is lost, and with it that of its server: nobody is told.
    pub fn crash(&mut self, name: &str) -> anyhow::Result<Vec<String>> {
        let place = place(name);
        for other in (0..NAMES.len()).filter(|other| *other != place) {
            let (of_machine, of_other) = (self.ensemble.server(place), self.ensemble.server(other));
            self.ensemble.cut(of_machine, of_other)?;
        }
        self.ensemble.kill(place);
        self.machines[place].crash()?;
        Ok(vec![format!("Domain '{name}' destroyed"), String::new()])
    }

    /// The power is back.
    pub fn boot(&mut self, name: &str) -> anyhow::Result<Vec<String>> {
        let place = place(name);
        for other in (0..NAMES.len()).filter(|other| *other != place) {
            let (of_machine, of_other) = (self.ensemble.server(place), self.ensemble.server(other));
            self.ensemble.heal(of_machine, of_other)?;
        }
        self.ensemble.launch(place)?;
        self.machines[place].boot()?;
        Ok(vec![format!("Domain '{name}' started"), String::new()])
    }
}

fn place(name: &str) -> usize {
    let found = NAMES.iter().position(|known| *known == name);
    found.unwrap_or_else(|| panic!("there is no machine {name}"))
}

/// What the packages have in them for machines with systemd: the program and the units, at the places that `nfpm.yaml`
/// names. Then what Debian and a user bring: sudo, which root needs for nothing, and ZooKeeper's shell.
fn install(machine: &Machine) -> anyhow::Result<()> {
    let package = read(Path::new(".ci/release/nfpm.yaml"));
    let units = "dst: /usr/lib/systemd/system/";
    anyhow::ensure!(package.contains(units), "the packages have no units");
    let usr = machine.usr();
    let (bin, system) = (usr.join("bin"), usr.join("lib/systemd/system"));
    let (zookeeper, jars) = (usr.join("share/zookeeper/bin"), usr.join("share/java"));
    for folder in [&bin, &system, &zookeeper, &jars] {
        fs::create_dir_all(folder)?;
    }
    fs::create_dir_all(machine.root().join("etc/lockkeeper"))?;
    fs::copy(binaries::lockkeeper()?, bin.join("lockkeeper")).context("the program")?;
    for unit in fs::read_dir(root().join("sidecar/systemd"))? {
        let unit = unit?;
        fs::copy(unit.path(), system.join(unit.file_name()))?;
    }
    for (script, text) in [
        (bin.join("sudo"), "#!/bin/sh\nexec \"$@\"\n"),
        (zookeeper.join("zkCli.sh"), ZKCLI),
    ] {
        fs::write(&script, text)?;
        fs::set_permissions(&script, PermissionsExt::from_mode(0o755))?;
    }
    for jar in fs::read_dir(java::libraries()?)? {
        let jar = jar?;
        fs::copy(jar.path(), jars.join(jar.file_name()))?;
    }
    Ok(())
}
