//! The programs that drive the locks.

use std::process::Command;

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
