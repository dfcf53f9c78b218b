//! What an administrator may take from the guard and the command.

use lockkeeper_documents::read;

use crate::services::{UNIT, holds};
use crate::site::Site;

const STATUS: &str = "lockkeeper status --socket /run/lockkeeper/report/lock.sock";

/// Starts the unit on one machine with a drop-in, and waits until it holds the lock.
fn start(site: &Site, drop_in: &str) {
    set_up(site, drop_in);
    assert_eq!(site.on("m1", &format!("systemctl start {UNIT}")), "");
    holds(site, "m1");
}

fn set_up(site: &Site, drop_in: &str) {
    site.name_servers("m1");
    site.write("m1", "/etc/lockkeeper/report.env", "COMMAND=/bin/sleep 1h\n");
    for (file, line) in [
        ("passwd", "report:x:990:990::/:/bin/sh"),
        ("group", "report:x:990:"),
    ] {
        site.on("m1", &format!("echo {line} >>/etc/{file}"));
    }
    site.drop_in("m1", "lockkeeper@report.service", drop_in);
}

#[test]
fn an_unprivileged_guard_with_the_hardening_of_the_documentation_has_a_control_group_for_the_command() {
    let Some(site) = Site::with(1) else { return };
    start(&site, &read("docs/examples/hardened.conf".as_ref()));
    let status = site.on("m1", STATUS);
    assert!(status.contains("contained  by cgroup"), "{status}");
    assert_eq!(
        site.on("m1", "ps -o user= -p $(pgrep --full '^/bin/sleep 1h')"),
        "report"
    );
    assert_eq!(site.on("m1", &format!("systemctl stop {UNIT}")), "");
    assert!(!site.is("m1", "pgrep --full '^/bin/sleep 1h'"));
}

#[test]
fn without_writable_control_groups_the_guard_sweeps_and_says_so() {
    let Some(site) = Site::with(1) else { return };
    start(&site, "[Service]\nProtectControlGroups=yes\n");
    let status = site.on("m1", STATUS);
    assert!(status.contains("contained  by sweep"), "{status}");
    let log = site.on("m1", &format!("journalctl --unit {UNIT} --output cat"));
    assert!(log.contains("No control group for the command"), "{log}");
}

#[test]
fn a_guard_that_could_neither_make_a_control_group_nor_see_all_processes_does_not_start() {
    let Some(site) = Site::with(1) else { return };
    set_up(
        &site,
        "[Service]\nUser=report\nProtectControlGroups=yes\nProtectProc=invisible\n",
    );
    site.on("m1", &format!("systemctl start {UNIT}"));
    site.wait_until("m1", &format!("systemctl is-failed {UNIT}"));
    let code = site.on(
        "m1",
        &format!("systemctl show --value --property ExecMainStatus {UNIT}"),
    );
    assert_eq!(code, "64", "{}", site.on("m1", "journalctl"));
}
