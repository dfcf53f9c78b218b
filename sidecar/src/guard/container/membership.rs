//! Which processes are those of one container of the pod.
//!
//! *By its mounts*: the kubelet bind-mounts a file of its own into every container, for its last words.
//! The root of that mount, a field of its line in `/proc/PID/mountinfo`, ends in
//! `pods/<uid>/containers/<name>/<id>`, wherever and under whatever spelling it is mounted.
//!
//! *By its control group*: a process that has hidden its mounts (`chroot`, `pivot_root`) is still in the
//! control group of a process that was known by them. A group is remembered once it is known.
//!
//! *By descent*: what descends from either belongs to it.
//!
//! *Doubtful* is a process of the pod, outside of our container, that shows no such mount and is in no control group
//! of a process that was known by its mounts: it may have hidden its mounts before the first look. It is paused and
//! killed with the container, although it may belong to another one, and the container does not count as gone while
//! it lives.
//!
//! All of these files are readable across users without a capability (`/proc/PID/mountinfo` and `cgroup`
//! have the mode 0444, and no further check).

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::process::Pid;

use super::groups::Groups;
use crate::guard::lines::Lines;
use crate::guard::mounts::Mount;
use crate::guard::processes::{Process, Processes, any_thread, is_gone, open_in};

/// What is looked for, and the memory to do so.
#[derive(Debug)]
pub(super) struct Membership {
    name: String,
    /// Unique id of the pod.
    pod: String,
    groups: Groups,
    lines: Lines,
    threads: Box<[MaybeUninit<u8>]>,
}

impl Membership {
    /// Of the container `name` in the pod of this process.
    ///
    /// # Errors
    /// When this process cannot even recognise its own container.
    pub(crate) fn new(name: &str) -> Result<Self, String> {
        let open = |file| {
            std::fs::File::open(file)
                .map(OwnedFd::from)
                .map_err(|error| format!("{file} cannot be read: {error}"))
        };
        let mut lines = Lines::new();
        let pod = pod_of(&open("/proc/self/mountinfo")?, &mut lines).ok_or(
            "/proc/self/mountinfo shows no mount of a kubelet for this container (`pods/UID/containers/NAME`)",
        )?;
        let groups = Groups::beside(&open("/proc/self/cgroup")?, &open("/proc/1/cgroup")?, &mut lines)
            .ok_or("/proc/self/cgroup shows no control group of this container")?;
        Ok(Self {
            name: name.into(),
            pod,
            groups,
            lines,
            threads: Box::new_uninit_slice(DIRECTORY_BUFFER),
        })
    }

    /// Looks at all processes anew, and marks those of the container and those that may be of it.
    pub(crate) fn mark(&mut self, processes: &mut Processes) {
        self.mark_known(processes);
        processes.doubt(|proc, process| self.is_doubtful(proc, process));
    }

    /// The same without those that only may be of it.
    pub(crate) fn mark_known(&mut self, processes: &mut Processes) {
        processes.scan();
        let known = self.groups.known();
        processes.mark(|proc, process| self.recognise(proc, process));
        if self.groups.known() != known {
            // Processes earlier in the table than the first that was known by its mounts may be in the same group.
            processes.mark(|proc, process| Ok(process.guarded || self.is_in_known_group(proc, process)?));
        }
        processes.mark_below();
    }

    /// Whether a process that was not recognised may belong to the container after all.
    fn is_doubtful(&mut self, proc: &OwnedFd, process: &Process) -> Result<bool, Errno> {
        let file = open_in(proc, format_args!("{}/cgroup", process.pid))?;
        Ok(
            self.groups.is_strange(&file, &mut self.lines)?
                && self.whose(proc, process.pid)? != Whose::Others,
        )
    }

    fn recognise(&mut self, proc: &OwnedFd, process: &Process) -> Result<bool, Errno> {
        // A zombie has no mounts, and cannot do anything.
        if process.is_zombie() {
            return Ok(false);
        }
        if self.is_in_known_group(proc, process)? {
            return Ok(true);
        }
        let whose = self.whose(proc, process.pid)?;
        if whose != Whose::Unknown {
            let file = open_in(proc, format_args!("{}/cgroup", process.pid))?;
            if whose == Whose::Ours {
                self.groups.learn(&file, &mut self.lines)?;
            } else if self.groups.read(&file, &mut self.lines)?
                // Asked again: a process on its way into its container may have hidden its mounts, and then entered the
                // container's group, since they were read.
                && self.whose(proc, process.pid)? == Whose::Others
            {
                self.groups.learn_other();
            }
        }
        Ok(whose == Whose::Ours)
    }

    fn is_in_known_group(&mut self, proc: &OwnedFd, process: &Process) -> Result<bool, Errno> {
        if process.is_zombie() || self.groups.known() == 0 {
            return Ok(false);
        }
        let file = open_in(proc, format_args!("{}/cgroup", process.pid))?;
        self.groups.has(&file, &mut self.lines)
    }

    /// To which container a process belongs, by its mounts.
    fn whose(&mut self, proc: &OwnedFd, pid: Pid) -> Result<Whose, Errno> {
        let Self {
            name,
            pod,
            lines,
            threads,
            ..
        } = self;
        let mut whose = Whose::Unknown;
        let mut read = |file: OwnedFd| {
            lines.any(&file, |line| match pod_and_container(line) {
                Some((uid, container)) if uid == pod.as_bytes() && container == name.as_bytes() => {
                    whose = Whose::Ours;
                    true
                }
                Some(_) => {
                    whose = Whose::Others;
                    false
                }
                None => false,
            })
        };
        let read = match open_in(proc, format_args!("{pid}/mountinfo")).and_then(&mut read) {
            // proc_pid_mountinfo(5) does not say so: a main thread that has ended has no mounts any
            // more, and the other threads have.
            Err(Errno::INVAL) => any_thread(proc, pid, threads, |thread| {
                match open_in(proc, format_args!("{pid}/task/{thread}/mountinfo")).and_then(&mut read) {
                    Err(error) if is_gone(error) || error == Errno::INVAL => Ok(false),
                    found => found,
                }
            }),
            found => found,
        };
        read.map(|_| whose)
    }
}

/// What the mounts of a process say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Ours,
    Others,
    Unknown,
}

/// Bytes of directory entries read at once.
const DIRECTORY_BUFFER: usize = 4096;

/// Unique id of the pod to which the process with this mountinfo belongs.
fn pod_of(mountinfo: &OwnedFd, lines: &mut Lines) -> Option<String> {
    let mut pod = None;
    let seen = lines.any(mountinfo, |line| {
        pod = pod_and_container(line).and_then(|(uid, _)| String::from_utf8(uid.to_vec()).ok());
        pod.is_some()
    });
    pod.filter(|_| seen.is_ok())
}

/// Of a line whose root ends in `pods/<uid>/containers/<name>/<id>`, the uid and the name. Neither can
/// contain what is written in octal digits (Kubernetes: RFC 1123 labels).
pub(in crate::guard) fn pod_and_container(line: &[u8]) -> Option<(&[u8], &[u8])> {
    // A node whose kubelet has a file system of its own shows no slash before `pods`.
    let mut parts = Mount::parse(line)?.root.rsplit(|byte| *byte == b'/');
    let _id = parts.next().filter(|id| !id.is_empty())?;
    let name = parts.next()?;
    let containers = parts.next()?;
    let uid = parts.next()?;
    let pods = parts.next()?;
    (containers == b"containers" && pods == b"pods").then_some((uid, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "700 650 254:1 /var/lib/kubelet/pods/6f1c/containers/app/0af3 /dev/termination-log rw - ext4 /dev/vda rw";

    fn container(line: &str) -> Option<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        pod_and_container(line.as_bytes()).map(|(uid, name)| (text(uid), text(name)))
    }

    #[test]
    fn a_container_is_known_by_the_source_of_a_mount_wherever_that_is_mounted() {
        let app = Some(("6f1c".to_owned(), "app".to_owned()));
        assert_eq!(container(LINE), app);
        for point in ["/run/term", "/var/run/term", "//dev//log", "/a\\040b", "/"] {
            assert_eq!(
                container(&LINE.replace("/dev/termination-log", point)),
                app,
                "{point}"
            );
        }
        assert_eq!(container(&LINE.replace("/var/lib/kubelet/pods", "pods")), app);
        assert_eq!(
            container(&LINE.replace("/var/lib/kubelet", "/var/my\\040kubelet\\134")),
            app
        );
    }

    #[test]
    fn other_mounts_are_those_of_no_container() {
        for (from, to) in [
            ("/containers/", "/volumes/"),
            ("/pods/", "/plugins/"),
            ("/0af3", "/"),
            ("/var/lib/kubelet/pods/6f1c/containers/app/0af3", "/"),
        ] {
            assert_eq!(container(&LINE.replace(from, to)), None, "{to}");
        }
        assert_eq!(container(""), None);
    }

    #[test]
    fn the_own_pod_is_told_by_the_own_mounts_or_not_at_all() {
        let pod = |content: &str| {
            use std::io::{Seek, Write};
            let mut file = tempfile::tempfile().expect("a temporary file");
            file.write_all(content.as_bytes()).expect("written");
            file.rewind().expect("rewound");
            pod_of(&file.into(), &mut Lines::new())
        };
        let root = "600 550 0:55 / / rw - overlay overlay rw\n";
        assert_eq!(pod(&format!("{root}{LINE}\n")).as_deref(), Some("6f1c"));
        // gVisor shows nothing of the node, Kata its own virtual machine.
        let kata =
            "700 650 0:30 /containers/0af3-termination-log /dev/termination-log rw - virtiofs none rw\n";
        assert_eq!(pod(&format!("{root}{kata}")), None);
    }
}
