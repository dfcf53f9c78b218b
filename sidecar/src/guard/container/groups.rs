//! Control groups by which processes are told from ours: lines of `/proc/PID/cgroup` (cgroups(7)).
//!
//! A hierarchy tells something only where the other process is elsewhere than we. In a namespace of
//! their own for control groups, which containers have on version 2, our group is called `/`, and that
//! of another container `/../<id>`.
//!
//! *The group of the pod* is the lowest that ours and that of the first process have in common, where the
//! containers of the pod share a process namespace: its first process is then that of the pod's sandbox.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::guard::lines::Lines;

/// As many of a container are remembered: it has another one after each restart, and the processes of
/// the one before may not be gone yet.
const MOST: usize = 4;

/// As many of other containers of the pod are remembered: more than pods have.
const MOST_OTHERS: usize = 32;

/// Our group lies at most so far below that of the pod: a runtime may put the processes of a container into a group
/// below the container's (crun). The first process of a machine has less in common with us.
const DEEPEST: usize = 2;

/// Longest line that is remembered: a path (PATH_MAX), and what is before it.
const LONGEST: usize = 4096 + 256;

/// Groups of others, and ours.
#[derive(Debug)]
pub(in crate::guard) struct Groups {
    /// Our own, one for each hierarchy.
    own: Vec<Vec<u8>>,
    /// Of the container.
    known: Remembered<MOST>,
    /// Of other containers.
    others: Remembered<MOST_OTHERS>,
    /// Where all containers of the pod are, in each hierarchy that shows it.
    pods: Vec<Pod>,
    /// The line that is being learned.
    news: Vec<u8>,
}

/// Groups in memory that was set aside before, that which was asked for last in front.
#[derive(Debug)]
struct Remembered<const MOST: usize> {
    groups: [Vec<u8>; MOST],
    /// How many were ever known.
    count: usize,
}

impl<const MOST: usize> Remembered<MOST> {
    fn new() -> Self {
        Self {
            groups: std::array::from_fn(|_| Vec::with_capacity(LONGEST)),
            count: 0,
        }
    }

    fn learn(&mut self, group: &[u8]) {
        let is_known = |known: &Vec<u8>| known == group;
        let at = self.groups.iter().position(is_known).unwrap_or_else(|| {
            self.count += 1;
            self.groups[MOST - 1].clear();
            self.groups[MOST - 1].extend_from_slice(group);
            MOST - 1
        });
        self.groups[..=at].rotate_right(1);
    }

    fn has(&mut self, line: &[u8]) -> bool {
        let is_its = |known: &Vec<u8>| !known.is_empty() && is_in(line, known);
        let at = self.groups.iter().position(is_its);
        if let Some(at) = at {
            self.groups[..=at].rotate_right(1);
        }
        at.is_some()
    }
}

impl Groups {
    /// None is known yet; `own` is the file of this process, `first` that of the first one. `None` when
    /// `own` names no group.
    pub fn beside(own: &OwnedFd, first: &OwnedFd, lines: &mut Lines) -> Option<Self> {
        let mut all = |file| {
            let mut all = Vec::new();
            let read = lines.any(file, |line| {
                all.extend(split(line).map(|_| line.to_vec()));
                false
            });
            read.is_ok().then_some(all)
        };
        let (own, first) = (all(own)?, all(first)?);
        let pods = own
            .iter()
            .flat_map(|own| first.iter().filter_map(|first| Pod::of(own, first)))
            .collect();
        (!own.is_empty()).then(|| Self {
            own,
            known: Remembered::new(),
            others: Remembered::new(),
            pods,
            news: Vec::with_capacity(LONGEST),
        })
    }

    /// How many of the container were ever known.
    pub fn known(&self) -> usize {
        self.known.count
    }

    /// Remembers where a process of the container is, by its file, if that tells it from us.
    pub fn learn(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<(), Errno> {
        if self.read(file, lines)? {
            self.known.learn(&self.news);
        }
        Ok(())
    }

    /// The same for a process of another container.
    pub fn learn_other(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<(), Errno> {
        if self.read(file, lines)? {
            self.others.learn(&self.news);
        }
        Ok(())
    }

    /// Whether the process with this file is in the pod, and neither with us, nor with the first process, nor in a group
    /// that was learned of another container.
    pub fn is_strange(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
        let Self { others, pods, .. } = self;
        let mut is_beside = false;
        let is_known = lines.any(file, |line| {
            is_beside |= pods.iter().any(|pod| pod.has_beside_us(line));
            others.has(line)
        })?;
        Ok(is_beside && !is_known)
    }

    /// Reads the line that tells the process with this file from us into `news`, if there is one.
    fn read(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
        let (own, news) = (&self.own, &mut self.news);
        lines.any(file, |line| {
            let tells = line.len() <= LONGEST && tells_apart(line, own);
            if tells {
                news.clear();
                news.extend_from_slice(line);
            }
            tells
        })
    }

    /// Whether the process with this file is in a group of the container that is known, or below it.
    pub fn has(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
        lines.any(file, |line| self.known.has(line))
    }
}

/// The groups of a pod in one hierarchy, as lines.
#[derive(Debug)]
struct Pod {
    group: Vec<u8>,
    /// That of our container below it, if it has a name for us, and that of the first process.
    taken: [Vec<u8>; 2],
}

impl Pod {
    /// By our line and that of the first process.
    fn of(own: &[u8], first: &[u8]) -> Option<Self> {
        let ((hierarchy, own), (other, first)) = (split(own)?, split(first)?);
        let parts = |path| <[u8]>::split(path, |byte: &u8| *byte == b'/').filter(|part| !part.is_empty());
        let ups = parts(first).take_while(|part| *part == b"..").count();
        let common = parts(own).zip(parts(first)).take_while(|(a, b)| a == b).count();
        // From a namespace of our own we see its group by the way up to it.
        let (shared, below) = match ups {
            0 => (common, parts(own).count() - common),
            _ => (ups, ups + parts(own).count()),
        };
        let is_apart = hierarchy == other && shared > 0 && parts(first).count() > shared;
        if !is_apart || common > 0 && ups > 0 || !(1..=DEEPEST).contains(&below) {
            return None;
        }
        let join = |parts: &mut dyn Iterator<Item = &[u8]>| {
            parts.fold(hierarchy.to_vec(), |mut line, part| {
                line.push(b'/');
                line.extend_from_slice(part);
                line
            })
        };
        let ours = if ups == 0 {
            join(&mut parts(own).take(shared + 1))
        } else {
            Vec::new()
        };
        Some(Self {
            group: join(&mut parts(first).take(shared)),
            taken: [ours, join(&mut parts(first).take(shared + 1))],
        })
    }

    /// Whether this line is of another container than ours and that of the first process.
    fn has_beside_us(&self, line: &[u8]) -> bool {
        let below = line
            .strip_prefix(&self.group[..])
            .and_then(|rest| rest.strip_prefix(b"/"));
        let is_below = |rest: &[u8]| !rest.is_empty() && rest != b".." && !rest.starts_with(b"../");
        let is_taken = |taken: &Vec<u8>| !taken.is_empty() && is_in(line, taken);
        below.is_some_and(is_below) && !self.taken.iter().any(is_taken)
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
        in_pod(own, "")
    }

    fn in_pod(own: &str, first: &str) -> Groups {
        Groups::beside(&file(own), &file(first), &mut Lines::new()).expect("groups")
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
        assert!(Groups::beside(&file(""), &file(""), &mut Lines::new()).is_none());
        assert!(Groups::beside(&file("nonsense\n"), &file("0::/\n"), &mut Lines::new()).is_none());
    }

    fn is_strange(groups: &mut Groups, line: &str) -> bool {
        groups.is_strange(&file(line), &mut Lines::new()).expect("read")
    }

    #[test]
    fn who_is_beside_us_in_the_pod_and_of_no_known_container_is_strange() {
        let v1 = |name: &str| format!("8:pids:/kubepods/pod1/{name}\n0::/\n");
        for (own, first, strange, others) in [
            // Version 2 with a namespace, of runc and of crun; then without one, with both; version 1.
            (
                "0::/\n",
                "0::/../box\n",
                "0::/../app\n",
                ["0::/", "0::/a", "0::/../../pod2/app", "0::/.."],
            ),
            (
                "0::/\n",
                "0::/../../box/c\n",
                "0::/../../app/c\n",
                ["0::/../b", "0::/..", "0::/../../box", "0::/../../../x"],
            ),
            (
                "0::/p/pod1/me\n",
                "0::/p/pod1/box\n",
                "0::/p/pod1/app/x\n",
                ["0::/p/pod1/me/x", "0::/p/pod2/app", "0::/p/pod1", "0::/p"],
            ),
            (
                "0::/p/pod1/me/c\n",
                "0::/p/pod1/box\n",
                "0::/p/pod1/app/c\n",
                ["0::/p/pod1/me", "0::/p/pod1/me/d", "0::/p/pod12/c", "0::/"],
            ),
            (
                &v1("me"),
                &v1("box"),
                &v1("app"),
                [
                    "0::/",
                    "8:pids:/kubepods/pod1/me/x",
                    "8:pids:/kubepods/pod1",
                    "9:cpu:/kubepods/pod1/app",
                ],
            ),
        ] {
            let mut groups = in_pod(own, first);
            assert!(is_strange(&mut groups, strange), "{own} {strange}");
            for line in others.into_iter().chain([own, first]) {
                assert!(!is_strange(&mut groups, line), "{own} {line}");
            }
            groups
                .learn_other(&file(strange), &mut Lines::new())
                .expect("read");
            assert!(!is_strange(&mut groups, strange), "{own} {strange} is known");
        }
    }

    #[test]
    fn where_the_first_process_is_none_of_the_pod_nobody_is_strange() {
        for (own, first) in [
            ("0::/\n", "0::/\n"),
            ("0::/\n", ""),
            ("0::/\n", "0::/../../../../init.scope\n"),
            ("0::/a\n", "0::/init.scope\n"),
            ("0::/a/b\n", "0::/\n"),
            ("0::/a\n", "0::/a/b\n"),
            ("0::/a/b/c/d\n", "0::/a/init\n"),
            ("1:pids:/a/b\n", "2:cpu:/a/c\n"),
        ] {
            let mut groups = in_pod(own, first);
            for line in [
                "0::/../app\n",
                "0::/../../../../app\n",
                "0::/a/x\n",
                "0::/x\n",
                "1:pids:/a/x\n",
            ] {
                assert!(!is_strange(&mut groups, line), "{own} {first} {line}");
            }
        }
    }

    #[test]
    fn the_group_of_another_container_is_not_forgotten_while_it_is_asked_for() {
        let mut groups = in_pod("0::/\n", "0::/../box\n");
        let mut lines = Lines::new();
        for number in 0..3 * MOST_OTHERS {
            groups
                .learn_other(&file(&format!("0::/../{number}\n")), &mut lines)
                .expect("read");
            assert!(!is_strange(&mut groups, "0::/../0\n"), "after {number}");
        }
        assert!(is_strange(&mut groups, "0::/../1\n"));
    }
}
