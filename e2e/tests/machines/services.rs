//! `lockkeeper@.service`: a command that runs on one of the machines.

use lockkeeper_documents::root;
use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_judge::record::{Record, Records};
use lockkeeper_product::binaries;

use crate::site::Site;

pub const UNIT: &str = "lockkeeper@report";
const SOCKET: &str = "/run/lockkeeper/report/lock.sock";
/// How often systemd has started the unit again by itself.
const RESTARTS: &str = "systemctl show --value --property NRestarts lockkeeper@report";

/// Waits until the machine holds the lock.
#[track_caller]
pub fn holds(site: &Site, name: &str) {
    site.wait_until(
        name,
        &format!("lockkeeper wait --socket {SOCKET} --for held --timeout 60s"),
    );
}

/// Waits until the machine is in the queue.
#[track_caller]
fn queues(site: &Site, name: &str) {
    site.wait_until(
        name,
        &format!("lockkeeper wait --socket {SOCKET} --for queued --timeout 60s"),
    );
}

/// Writes the settings of a unit that runs the recorder.
fn set_up(site: &Site, name: &str, recorder: &str) {
    let program = site.machine(name).root().join("var/lib/recorder");
    // The file of a program that runs cannot be written.
    if !program.exists() {
        std::fs::copy(binaries::recorder().unwrap(), program).unwrap();
    }
    site.name_servers(name);
    let command = format!("COMMAND=/var/lib/recorder /var/lib/record --name {name} {recorder}\n");
    site.write(name, "/etc/lockkeeper/report.env", &command);
}

/// Starts the unit on machines, so that the first one holds and the next ones wait in this order.
fn start(site: &Site, names: &[&str]) {
    for name in names {
        set_up(site, name, "");
        // systemd remembers the end of a unit that is enabled.
        assert_eq!(
            site.on(name, &format!("systemctl enable --now --quiet {UNIT}")),
            ""
        );
        queues(site, name);
    }
    holds(site, names[0]);
}

/// What has run on the machines.
fn records(site: &Site, names: &[&str]) -> Vec<Record> {
    let files = names
        .iter()
        .map(|name| site.machine(name).root().join("var/lib/record"));
    let records = files.filter(|file| file.exists()).flat_map(|file| {
        let read = Records::read(&file).unwrap();
        read.records
    });
    records.collect()
}

#[track_caller]
fn nowhere_at_once(site: &Site, names: &[&str]) {
    let report = check(&records(site, names), Rule::Exclusive);
    assert!(report.is_clean(), "{report:?}");
}

/// Checks that the holder has not had to wait for the end of a lease.
#[track_caller]
fn assert_was_released_to(site: &Site, name: &str) {
    let status = site.on(name, &format!("lockkeeper status --socket {SOCKET}"));
    assert!(
        status.contains("Held") && !status.contains("took over"),
        "{status}"
    );
}

/// A property of the unit.
fn shows(site: &Site, name: &str, property: &str) -> String {
    site.on(
        name,
        &format!("systemctl show --value --property {property} {UNIT}"),
    )
}

#[test]
fn systemd_finds_no_fault_in_the_units() {
    let Some(site) = Site::with(1) else { return };
    for unit in std::fs::read_dir(root().join("sidecar/systemd")).unwrap() {
        let unit = unit.unwrap().file_name().into_string().unwrap();
        let unit = unit.replace('@', "@report");
        let said = site.on(
            "m1",
            &format!("systemd-analyze verify --man=no {unit} 2>&1 && echo good"),
        );
        assert_eq!(said, "good", "{unit}");
    }
}

#[test]
fn a_service_that_is_stopped_hands_over_and_counts_as_stopped_whether_it_held_or_waited() {
    let Some(site) = Site::start() else { return };
    start(&site, &["m1", "m2", "m3"]);
    assert_eq!(site.on("m1", &format!("systemctl stop {UNIT}")), "");
    holds(&site, "m2");
    // This one waits.
    assert_eq!(site.on("m3", &format!("systemctl stop {UNIT}")), "");
    for name in ["m1", "m3"] {
        assert_eq!(shows(&site, name, "ActiveState"), "inactive");
        assert_eq!(shows(&site, name, "Result"), "success");
    }
    assert_eq!(shows(&site, "m3", "ExecMainStatus"), "143");
    assert_was_released_to(&site, "m2");
    nowhere_at_once(&site, &["m1", "m2", "m3"]);
}

#[test]
fn a_machine_that_shuts_down_hands_over_before() {
    let Some(site) = Site::with(2) else { return };
    start(&site, &["m1", "m2"]);
    site.on("m1", "systemctl poweroff");
    holds(&site, "m2");
    assert_was_released_to(&site, "m2");
    nowhere_at_once(&site, &["m1", "m2"]);
}

#[test]
fn a_command_that_ends_runs_on_the_next_machine_and_its_own_queues_again() {
    let Some(site) = Site::with(2) else { return };
    start(&site, &["m1", "m2"]);
    let main = "kill -TERM $(pgrep --full ^/var/lib/recorder)";
    assert_eq!(site.on("m1", main), "");
    holds(&site, "m2");
    site.wait_until("m1", &format!("test $({RESTARTS}) = 1"));
    queues(&site, "m1");
    assert_eq!(shows(&site, "m1", "ActiveState"), "active");
    nowhere_at_once(&site, &["m1", "m2"]);
}

#[test]
fn after_a_sigkill_of_the_guard_nothing_is_left_and_the_next_machine_runs_the_command() {
    let Some(site) = Site::with(2) else { return };
    start(&site, &["m1", "m2"]);
    let guard = shows(&site, "m1", "MainPID");
    assert_eq!(site.on("m1", &format!("kill -KILL {guard}")), "");
    site.wait_until("m1", "! pgrep --full ^/var/lib/recorder");
    holds(&site, "m2");
    queues(&site, "m1");
    nowhere_at_once(&site, &["m1", "m2"]);
}

#[test]
fn a_keeper_that_is_killed_costs_the_command_nothing() {
    let Some(site) = Site::with(2) else { return };
    start(&site, &["m1", "m2"]);
    let command = "pgrep --full ^/var/lib/recorder";
    let before = site.on("m1", command);
    let keeper = site.on("m1", "pgrep --full ^lockkeeper-keeper");
    assert_eq!(site.on("m1", &format!("kill -KILL {keeper}")), "");
    site.wait_until(
        "m1",
        &format!("pgrep --full ^lockkeeper-keeper | grep --invert-match {keeper}"),
    );
    holds(&site, "m1");
    assert_eq!(site.on("m1", command), before);
    assert_eq!(shows(&site, "m1", "NRestarts"), "0");
}

#[test]
fn a_machine_that_is_cut_off_stops_the_command_in_time_and_queues_again_when_it_is_back() {
    let Some(site) = Site::with(2) else { return };
    start(&site, &["m1", "m2"]);
    let ensemble = &site.ensemble;
    // From its own server as well, which may answer it for as long as that has not noticed the cut.
    ensemble.kill(0);
    for other in [1, 2] {
        ensemble.cut(ensemble.server(0), ensemble.server(other)).unwrap();
    }
    holds(&site, "m2");
    site.wait_until("m1", &format!("test $({RESTARTS}) != 0"));
    let log = site.on("m1", &format!("journalctl --unit {UNIT} --output cat"));
    assert!(log.contains("status=75"), "{log}");
    for other in [1, 2] {
        ensemble.heal(ensemble.server(0), ensemble.server(other)).unwrap();
    }
    ensemble.launch(0).unwrap();
    queues(&site, "m1");
    nowhere_at_once(&site, &["m1", "m2"]);
}

#[test]
fn a_command_that_does_not_end_is_killed_when_the_time_to_stop_is_over() {
    let Some(site) = Site::with(2) else { return };
    let short = "[Service]\nTimeoutStopSec=1s\n";
    site.drop_in("m1", "lockkeeper@report.service", short);
    start(&site, &["m1", "m2"]);
    set_up(&site, "m1", "--ignore-sigterm");
    assert_eq!(site.on("m1", &format!("systemctl restart {UNIT}")), "");
    holds(&site, "m2");
    assert_eq!(site.on("m2", &format!("systemctl stop {UNIT}")), "");
    holds(&site, "m1");
    site.on("m1", &format!("systemctl stop {UNIT}"));
    assert_eq!(shows(&site, "m1", "Result"), "timeout");
    assert!(!site.is("m1", "pgrep --full ^/var/lib/recorder"));
    nowhere_at_once(&site, &["m1", "m2"]);
}

#[test]
fn what_needs_a_repair_is_not_started_again() {
    let Some(site) = Site::with(1) else { return };
    assert_eq!(site.on("m1", &format!("systemctl enable --quiet {UNIT}")), "");
    let connect = "LOCKKEEPER_CONNECT=m1:2181,m2:2181,m3:2181\n";
    for (settings, code) in [
        (format!("{connect}COMMAND=/usr/bin/none\n"), "127"),
        (format!("{connect}COMMAND=/etc/passwd\n"), "126"),
        (connect.to_owned(), "64"),
        ("COMMAND=/bin/true\n".to_owned(), "64"),
    ] {
        site.write("m1", "/etc/lockkeeper/report.env", &settings);
        site.on("m1", &format!("systemctl start {UNIT}"));
        site.wait_until("m1", &format!("systemctl is-failed {UNIT}"));
        assert_eq!(shows(&site, "m1", "ExecMainStatus"), code, "{settings}");
        assert_eq!(shows(&site, "m1", "NRestarts"), "0", "{settings}");
        site.on("m1", &format!("systemctl reset-failed {UNIT}"));
    }
    let said = site.on("m1", "systemctl start lockkeeper@other");
    assert!(said.contains("Assertion failed"), "there is no other.env: {said}");
}
