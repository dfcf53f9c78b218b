//! Control groups by which processes are told from ours: lines of `/proc/PID/cgroup` (cgroups(7)).
//!
//! A hierarchy tells something only where the other process is elsewhere than we. In a namespace of
//! their own for control groups, which containers have on version 2, our group is called `/`, and that
//! of another container `/../<id>`.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::guard::lines::Lines;

/// As many of a container are remembered: it has another one after each restart, and the processes of
/// the one before may not be gone yet.
const MOST: usize = 4;

/// Longest line that is remembered: a path (PATH_MAX), and what is before it.
const LONGEST: usize = 4096 + 256;

/// Groups of others, and ours.
#[derive(Debug)]
pub(in crate::guard) struct Groups {
    /// Our own, one for each hierarchy.
    own: Vec<Vec<u8>>,
    /// In memory that was set aside before.
    known: [Vec<u8>; MOST],
    /// How many were ever known.
    count: usize,
    /// The line that is being learned.
    news: Vec<u8>,
}

impl Groups {
    /// None is known yet; `own` is the file of this process. `None` when that names no group.
    pub fn beside(own: &OwnedFd, lines: &mut Lines) -> Option<Self> {
        let mut all = Vec::new();
        let read = lines.any(own, |line| {
            all.extend(split(line).map(|_| line.to_vec()));
            false
        });
        (read.is_ok() && !all.is_empty()).then(|| Self {
            own: all,
            known: std::array::from_fn(|_| Vec::with_capacity(LONGEST)),
            count: 0,
            news: Vec::with_capacity(LONGEST),
        })
    }

    /// How many were ever known.
    pub fn known(&self) -> usize {
        self.count
    }

    /// Remembers where the process with this file is, if that tells it from us.
    pub fn learn(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<(), Errno> {
        let (own, news) = (&self.own, &mut self.news);
        let tells = lines.any(file, |line| {
            let tells = line.len() <= LONGEST && tells_apart(line, own);
            if tells {
                news.clear();
                news.extend_from_slice(line);
            }
            tells
        })?;
        if tells && !self.known.contains(&self.news) {
            self.known[self.count % MOST].clone_from(&self.news);
            self.count += 1;
        }
        Ok(())
    }

    /// Whether the process with this file is in a group that is known, or below it.
    pub fn has(&self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
        let known = &self.known[..self.count.min(MOST)];
        lines.any(file, |line| known.iter().any(|known| is_in(line, known)))
    }
}

/// Of a line `number:controllers:path`, what names the hierarchy and the path.
fn split(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let number = line.iter().position(|byte| *byte == b':')?;
    let controllers = line[number + 1..].iter().position(|byte| *byte == b':')?;
    let (hierarchy, path) = line.split_at(number + 1 + controllers + 1);
    path.starts_with(b"/").then_some((hierarchy, path))
}

fn is_in(line: &[u8], group: &[u8]) -> bool {
    line.strip_prefix(group)
        .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

/// Whether the group of this line is one in which we are not: not ours, and none above us.
fn tells_apart(line: &[u8], own: &[Vec<u8>]) -> bool {
    let Some((hierarchy, path)) = split(line) else {
        return false;
    };
    let is_above = |parts: &[u8]| {
        parts
            .split(|byte| *byte == b'/')
            .all(|part| part.is_empty() || part == b"..")
    };
    // Also where we are not in that hierarchy at all.
    !is_above(path)
        && own
            .iter()
            .filter(|own| own.starts_with(hierarchy))
            .all(|own| !is_in(own, line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: &str) -> OwnedFd {
        use std::io::{Seek, Write};
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(content.as_bytes()).expect("written");
        file.rewind().expect("rewound");
        file.into()
    }

    fn beside(own: &str) -> Groups {
        Groups::beside(&file(own), &mut Lines::new()).expect("groups")
    }

    /// Whether `other` is taken for one of the container of `member`.
    fn is_member(own: &str, member: &str, other: &str) -> bool {
        let mut groups = beside(own);
        let mut lines = Lines::new();
        groups.learn(&file(member), &mut lines).expect("read");
        groups.has(&file(other), &mut lines).expect("read")
    }

    #[test]
    fn a_process_is_known_by_the_group_of_another_one_on_version_2_and_1() {
        assert!(is_member("0::/\n", "0::/../app\n", "0::/../app\n"));
        assert!(is_member("0::/\n", "0::/../app\n", "0::/../app/below\n"));
        assert!(!is_member("0::/\n", "0::/../app\n", "0::/../app2\n"));
        let node = |name: &str| format!("9:name=systemd:/\n8:pids:/kubepods/pod1/{name}\n0::/\n");
        assert!(is_member(&node("keeper"), &node("app"), &node("app")));
        assert!(!is_member(&node("keeper"), &node("app"), &node("other")));
    }

    #[test]
    fn a_group_that_we_are_in_ourselves_tells_nothing() {
        for (own, member) in [
            ("0::/\n", "0::/\n"),
            ("0::/a/b\n", "0::/a\n"),
            ("0::/\n", "0::/..\n"),
            ("0::/\n", "0::/../..\n"),
            ("0::/a/b\n", "0::/\n"),
        ] {
            assert!(!is_member(own, member, own), "{own} {member}");
            assert!(!is_member(own, member, member), "{own} {member}");
        }
    }

    #[test]
    fn the_groups_of_the_last_restarts_are_remembered() {
        let mut groups = beside("0::/\n");
        let mut lines = Lines::new();
        for number in 0..6 {
            for _ in 0..2 {
                groups
                    .learn(&file(&format!("0::/../{number}\n")), &mut lines)
                    .expect("read");
            }
        }
        assert_eq!(groups.known(), 6);
        let remembered: Vec<_> = (0..6)
            .filter(|number| groups.has(&file(&format!("0::/../{number}\n")), &mut lines) == Ok(true))
            .collect();
        assert_eq!(remembered, [2, 3, 4, 5]);
    }

    #[test]
    fn a_machine_without_control_groups_is_told() {
        assert!(Groups::beside(&file(""), &mut Lines::new()).is_none());
        assert!(Groups::beside(&file("nonsense\n"), &mut Lines::new()).is_none());
    }
}
