//! Three machines with a real systemd, the units of the packages, and `docs/tutorial-machines.md` command by command: what
//! the page shows is what a user gets.

mod hardened;
mod jobs;
mod services;
mod site;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use lockkeeper_documents::replay;
use lockkeeper_product::Shell;
use lockkeeper_testbed::machine::ENTER;

use self::site::Site;

/// For one command.
const BOUND: Duration = Duration::from_secs(120);

/// What only virtual machines have; the test does it to the machine itself.
const STOP: &str = "virsh destroy ";
const START: &str = "virsh start ";

/// Instead of a connection: `ssh MACHINE COMMAND…` executes the command on the machine. It ends with 255 if that is off.
fn ssh(site: &Site) -> String {
    let entrances: String = site
        .names()
        .map(|name| {
            format!(
                "    {name}) entrance={} ;;\n",
                site.machine(name).entrance().display()
            )
        })
        .collect();
    format!(
        "#!/bin/sh\nif [ \"$1\" = -n ]; then shift; exec </dev/null; fi\nname=$1\nshift\ncase $name in\n{entrances}    *) exit 255 ;;\nesac\n\
         exec sh -c '{ENTER}' sh \"$entrance\" \"$*\"\n"
    )
}

#[test]
fn every_command_of_the_tutorial_for_machines_does_what_the_page_shows() {
    let Some(mut site) = Site::start() else { return };
    let programs = tempfile::tempdir().unwrap();
    let program = programs.path().join("ssh");
    std::fs::write(&program, ssh(&site)).unwrap();
    std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let mut shell = Shell::start(programs, &[]).unwrap();
    replay("docs/tutorial-machines.md", |command| {
        let answer = if let Some(name) = command.strip_prefix(STOP) {
            site.crash(name)
        } else if let Some(name) = command.strip_prefix(START) {
            site.boot(name)
        } else {
            shell.run(command, BOUND)
        };
        answer.unwrap_or_else(|error| panic!("{command}: {error:#}"))
    });
}
