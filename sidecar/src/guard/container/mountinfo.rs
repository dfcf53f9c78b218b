//! Reads `/proc/PID/mountinfo` line by line in a fixed buffer.

use std::os::fd::OwnedFd;

/// Bytes read at once. The two fields that matter are the fourth and fifth of a line; what follows
/// (an overlay's list of layers, say) may be longer than this and is skipped.
const BUFFER: usize = 8192;

/// What to look for, and the memory to do so.
#[derive(Debug)]
pub(super) struct MountInfo {
    name: String,
    log: String,
    /// Unique id of the pod, when it is known.
    pod: Option<String>,
    buffer: Box<[u8; BUFFER]>,
}

impl MountInfo {
    pub fn new(name: &str, log: &str) -> Self {
        Self {
            name: name.into(),
            log: log.into(),
            pod: None,
            buffer: Box::new([0; BUFFER]),
        }
    }

    /// Looks only for containers of the pod to which the process with this mountinfo belongs, where
    /// that can be seen. In a pod of its own PID namespace there are no others; this guards against
    /// a pod that was given the node's (`hostPID`).
    pub fn restrict_to_pod_of(&mut self, mountinfo: &OwnedFd) {
        let mut pod = None;
        for_each_line(mountinfo, &mut self.buffer, |line| {
            if let Some((root, _)) = root_and_mount_point(line)
                && let Some((uid, _)) = pod_and_container(root)
            {
                pod = std::str::from_utf8(uid).ok().map(str::to_owned);
            }
            pod.is_some()
        });
        self.pod = pod;
    }

    /// Whether this is the mountinfo of a process of the container.
    pub fn matches(&mut self, mountinfo: &OwnedFd) -> bool {
        let mut found = false;
        let (name, log, pod) = (self.name.as_bytes(), self.log.as_bytes(), self.pod.as_deref());
        for_each_line(mountinfo, &mut self.buffer, |line| {
            found = root_and_mount_point(line).is_some_and(|(root, mount_point)| {
                mount_point == log
                    && pod_and_container(root).is_some_and(|(uid, container)| {
                        container == name && pod.is_none_or(|pod| pod.as_bytes() == uid)
                    })
            });
            found
        });
        found
    }
}

/// Calls `visit` with each line until it says true. Of a line longer than the buffer it gets the
/// beginning. A file that cannot be read on is a process that has ended.
fn for_each_line(file: &OwnedFd, buffer: &mut [u8; BUFFER], mut visit: impl FnMut(&[u8]) -> bool) {
    let mut filled = 0;
    let mut skipping = false;
    while let Ok(read @ 1..) = rustix::io::read(file, &mut buffer[filled..]) {
        filled += read;
        let mut from = 0;
        while let Some(len) = buffer[from..filled].iter().position(|byte| *byte == b'\n') {
            if !std::mem::take(&mut skipping) && visit(&buffer[from..from + len]) {
                return;
            }
            from += len + 1;
        }
        buffer.copy_within(from..filled, 0);
        filled -= from;
        if filled == BUFFER {
            if !std::mem::replace(&mut skipping, true) && visit(&buffer[..]) {
                return;
            }
            filled = 0;
        }
    }
}

/// Fields 4 and 5 of a line (proc_pid_mountinfo(5)).
fn root_and_mount_point(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut fields = line.split(|byte| *byte == b' ').skip(3);
    Some((fields.next()?, fields.next()?))
}

/// Of a root that ends in `pods/<uid>/containers/<name>/<id>`, the uid and the name.
fn pod_and_container(root: &[u8]) -> Option<(&[u8], &[u8])> {
    // A node whose kubelet has a file system of its own shows no slash before `pods`.
    let mut parts = root.rsplit(|byte| *byte == b'/');
    let _id = parts.next().filter(|id| !id.is_empty())?;
    let name = parts.next()?;
    let containers = parts.next()?;
    let uid = parts.next()?;
    let pods = parts.next()?;
    (containers == b"containers" && pods == b"pods").then_some((uid, name))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const LINE: &str = "700 650 254:1 /var/lib/kubelet/pods/6f1c/containers/app/0af3 /dev/termination-log rw - ext4 /dev/vda rw\n";

    fn matches(info: &mut MountInfo, content: &str) -> bool {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(content.as_bytes()).expect("written");
        std::io::Seek::rewind(&mut file).expect("rewound");
        info.matches(&file.into())
    }

    #[test]
    fn a_container_is_known_by_the_source_of_its_termination_log() {
        let mut app = MountInfo::new("app", "/dev/termination-log");
        assert!(matches(&mut app, LINE));
        assert!(matches(&mut app, &LINE.replace("/var/lib/kubelet/pods", "pods")));
        assert!(!matches(&mut app, &LINE.replace("/app/", "/app2/")));
        assert!(!matches(
            &mut app,
            &LINE.replace("/dev/termination-log", "/dev/other")
        ));
        assert!(!matches(&mut app, &LINE.replace("/containers/", "/volumes/")));
        assert!(!matches(&mut app, "700 650 254:1 / / rw - ext4 /dev/vda rw\n"));
        assert!(matches(
            &mut MountInfo::new("app", "/log"),
            &LINE.replace("/dev/termination-log", "/log")
        ));
    }

    #[test]
    fn a_line_is_found_before_between_and_behind_lines_of_any_length() {
        let mut app = MountInfo::new("app", "/dev/termination-log");
        let long = |len| {
            format!(
                "1 2 0:1 / / rw - overlay overlay rw,lowerdir={}\n",
                "x".repeat(len)
            )
        };
        for len in [1, BUFFER - 60, BUFFER, 3 * BUFFER + 7] {
            let long = long(len);
            assert!(matches(&mut app, &format!("{long}{LINE}")), "{len}");
            assert!(matches(&mut app, &format!("{LINE}{long}")), "{len}");
            assert!(matches(&mut app, &format!("{long}{long}{LINE}{long}")), "{len}");
            assert!(!matches(&mut app, &format!("{long}{long}")), "{len}");
        }
        let own_line_is_long = LINE.replace(" rw\n", &format!(" rw,x={}\n", "y".repeat(2 * BUFFER)));
        assert!(matches(&mut app, &own_line_is_long));
    }

    #[test]
    fn a_container_of_the_same_name_in_another_pod_is_left_alone() {
        let mut own = tempfile::tempfile().expect("a temporary file");
        own.write_all(LINE.replace("/app/", "/lockkeeper/").as_bytes())
            .expect("written");
        std::io::Seek::rewind(&mut own).expect("rewound");
        let mut app = MountInfo::new("app", "/dev/termination-log");
        app.restrict_to_pod_of(&own.into());
        assert!(matches(&mut app, LINE));
        assert!(!matches(&mut app, &LINE.replace("6f1c", "77aa")));
    }
}
