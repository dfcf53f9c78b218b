//! Where in the file system the control group of this process is.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use crate::guard::mounts::{Mount, decoded};

/// The control group of this process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub directory: PathBuf,
    /// Its path in `/proc/PID/cgroup`.
    pub path: String,
}

/// Where this process is.
///
/// # Errors
/// Why that cannot be said.
pub(super) fn own() -> Result<Place, String> {
    let read = |file: &str| {
        std::fs::read(file)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .map_err(|error| format!("{file} cannot be read: {error}"))
    };
    place(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
}

/// The same, by what the two files say.
pub(crate) fn place(mountinfo: &str, cgroup: &str) -> Result<Place, String> {
    // cgroups(7): the hierarchy of version 2 has the number 0 and no controllers.
    let path = cgroup
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .ok_or("the kernel has no control groups of version 2")?;
    let mounts = mountinfo.lines().filter_map(|line| Mount::parse(line.as_bytes()));
    let mut is_mounted = false;
    for mount in mounts.filter(|mount| mount.kind == b"cgroup2") {
        is_mounted = true;
        let root = decoded(mount.root);
        let root = String::from_utf8_lossy(&root);
        let Some(below) = path.strip_prefix(root.trim_end_matches('/')) else {
            continue;
        };
        if !(below.is_empty() || below.starts_with('/')) || below.split('/').any(|part| part == "..") {
            continue;
        }
        let mut directory = PathBuf::from(OsString::from_vec(decoded(mount.point)));
        directory.push(below.trim_start_matches('/'));
        return Ok(Place {
            directory,
            path: path.to_owned(),
        });
    }
    Err(if is_mounted {
        format!("the group of this process, {path}, is below no mount of control groups")
    } else {
        "control groups of version 2 are not mounted".to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYSTEMD: &str = "24 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n\
        30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "28 22 0:24 / /sys/fs/cgroup ro,nosuid shared:8 - tmpfs tmpfs ro,mode=755\n\
        29 28 0:25 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw\n\
        33 28 0:29 / /sys/fs/cgroup/pids rw shared:13 - cgroup cgroup rw,pids\n";

    fn at(mountinfo: &str, cgroup: &str) -> Result<(String, String), String> {
        place(mountinfo, cgroup).map(|place| {
            (
                place.directory.to_str().expect("text").to_owned(),
                place.path.clone(),
            )
        })
    }

    fn found(directory: &str, path: &str) -> Result<(String, String), String> {
        Ok((directory.to_owned(), path.to_owned()))
    }

    #[test]
    fn the_own_group_is_found_with_one_hierarchy_with_both_and_in_a_container() {
        assert_eq!(
            at(SYSTEMD, "0::/system.slice/cron.service\n"),
            found(
                "/sys/fs/cgroup/system.slice/cron.service",
                "/system.slice/cron.service"
            )
        );
        assert_eq!(
            at(HYBRID, "9:pids:/user.slice\n0::/\n"),
            found("/sys/fs/cgroup/unified/", "/")
        );
        // A container with a namespace of its own for control groups, and one without.
        let container = "700 600 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(at(container, "0::/\n"), found("/sys/fs/cgroup/", "/"));
        let host = "700 600 0:26 /kubepods/pod1/a /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        assert_eq!(
            at(host, "0::/kubepods/pod1/a/b\n"),
            found("/sys/fs/cgroup/b", "/kubepods/pod1/a/b")
        );
        let blank = "700 600 0:26 / /mnt/a\\040b rw - cgroup2 cgroup rw\n";
        assert_eq!(at(blank, "0::/x\n"), found("/mnt/a b/x", "/x"));
    }

    #[test]
    fn a_group_that_cannot_be_reached_is_not_taken_for_another_one() {
        let below = "700 600 0:26 /kubepods/pod1/a /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        for path in ["/", "/kubepods/pod1/ab", "/kubepods/pod2"] {
            assert!(at(below, &format!("0::{path}\n")).is_err(), "{path}");
        }
        assert!(at(SYSTEMD, "0::/../other\n").is_err());
        assert_eq!(
            at("24 1 8:1 / / rw - ext4 /dev/sda1 rw\n", "0::/\n"),
            Err("control groups of version 2 are not mounted".to_owned())
        );
        assert_eq!(
            at(HYBRID, "9:pids:/\n"),
            Err("the kernel has no control groups of version 2".to_owned())
        );
    }
}
