//! `lockkeeper-job@.service`: a command that runs once.

use crate::site::Site;

const UNIT: &str = "lockkeeper-job@nightly";
/// The command runs on the machine, or has run there.
const RUNS: &str = "test -e /run/runs";
/// A command that does not end.
const ENDLESS: &str = "COMMAND=/bin/sh -c \"touch /run/runs; sleep 1h\"\n";

/// Settings of the job on all machines.
fn set_up(site: &Site, settings: &str) {
    for name in site.names() {
        site.name_servers(name);
        site.write(name, "/etc/lockkeeper/nightly.env", settings);
    }
}

#[test]
fn a_job_runs_on_the_first_machine_and_succeeds_at_once_on_the_others() {
    let Some(site) = Site::start() else { return };
    set_up(&site, ENDLESS);
    site.on("m1", &format!("systemctl start --no-block {UNIT}"));
    site.wait_until("m1", RUNS);
    for name in ["m2", "m3"] {
        assert_eq!(site.on(name, &format!("systemctl start {UNIT}")), "");
        let log = site.on(name, &format!("journalctl --unit {UNIT} --output cat"));
        assert!(log.contains("the lock /locks/nightly is not free"), "{log}");
        assert!(!site.is(name, RUNS));
    }
}

#[test]
fn a_machine_that_waits_for_its_turn_does_the_work_of_one_that_crashed() {
    let Some(mut site) = Site::with(2) else { return };
    set_up(&site, &format!("{ENDLESS}LOCKKEEPER_WAIT_TIMEOUT=1h\n"));
    for name in ["m1", "m2"] {
        site.on(name, &format!("systemctl start --no-block {UNIT}"));
        let queued =
            "lockkeeper wait --socket /run/lockkeeper-job/nightly/lock.sock --for queued --timeout 60s";
        site.wait_until(name, queued);
    }
    site.wait_until("m1", RUNS);
    assert!(!site.is("m2", RUNS));
    site.crash("m1").unwrap();
    site.wait_until("m2", RUNS);
}

#[test]
fn a_job_whose_command_fails_has_failed() {
    let Some(site) = Site::with(1) else { return };
    set_up(&site, "COMMAND=/bin/false\n");
    site.on("m1", &format!("systemctl start {UNIT}"));
    let show = format!("systemctl show --value --property Result,ExecMainStatus {UNIT}");
    assert_eq!(site.on("m1", &show), "exit-code\n1");
}

#[test]
fn the_timer_starts_the_job() {
    let Some(site) = Site::with(1) else { return };
    set_up(&site, "COMMAND=/bin/touch /run/runs\n");
    let soon = "[Timer]\nOnCalendar=\nOnCalendar=*:*:*\n";
    site.drop_in("m1", &format!("{UNIT}.timer"), soon);
    site.on("m1", &format!("systemctl enable --now {UNIT}.timer"));
    site.wait_until("m1", RUNS);
}
