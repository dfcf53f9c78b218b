//! The programs that drive the locks.

use std::process::Command;

use lockkeeper_product::binaries;
use lockkeeper_testbed::foreign::boot_offset;

use crate::programs::{Size, consul, go, java, python};
use crate::servers::Kind;
use crate::systems::{Driver, System};

/// The command of a driver, without its arguments. `None` for our own, which needs none.
///
/// # Errors
/// When it cannot be built: its language is missing, or a dependency cannot be fetched.
pub(crate) fn command(system: &System) -> anyhow::Result<Option<Command>> {
    of(system, Size::One)
}

/// The same for a crowd.
///
/// # Errors
/// As [`command`].
pub(crate) fn crowd(system: &System) -> anyhow::Result<Option<Command>> {
    of(system, Size::Crowd)
}

/// `lockkeeper run` for a lock, without its command.
///
/// It is root here, and would be scheduled before all others. A pod has no right to that, nor has any rival.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn own(servers: &str, lock: &str) -> anyhow::Result<Command> {
    let mut command = Command::new("setpriv");
    command
        .args(["--bounding-set=-sys_nice", "--inh-caps=-sys_nice"])
        .arg(binaries::lockkeeper()?)
        .args(["run", "--connect", servers])
        .args(["--lock", &format!("{OWN_ROOT}/{lock}")]);
    Ok(command)
}

/// Below which node our locks are. A client that queues with ours has to name it.
pub(crate) const OWN_ROOT: &str = "/rivals";

fn of(system: &System, size: Size) -> anyhow::Result<Option<Command>> {
    Ok(match system.driver {
        Driver::Own(_) | Driver::Crowd(_) => None,
        Driver::Java => {
            let mut command = java("lockkeeper.rivals.Driver", size)?;
            command.args(["--boot-offset-ns", &boot_offset().to_string()]);
            Some(command)
        }
        Driver::Go => {
            let directory = go()?;
            let mut command = Command::new(directory.join("rivals"));
            // It runs `etcdctl lock` and `consul lock` as a user would.
            let mut path = format!(
                "{}:{}",
                directory.display(),
                std::env::var("PATH").unwrap_or_default()
            );
            if system.servers == Kind::Consul {
                path = format!("{}:{path}", consul()?.display());
            }
            command.env("PATH", path);
            Some(command)
        }
        Driver::Python => Some(python()?),
    })
}
