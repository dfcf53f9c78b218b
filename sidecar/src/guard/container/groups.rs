//! Control groups by which processes are told from ours: lines of `/proc/PID/cgroup` (cgroups(7)).
//!
//! A hierarchy distinguishes a process only if that is in another group than we. In a namespace of their own for
//! control groups, which containers have on version 2, our group is called `/`, and that of another container
//! `/../<id>`.
//!
//! *The group of the pod* is the lowest that ours and that of the first process have in common, where the
//! containers of the pod share a process namespace: its first process is then that of the pod's sandbox.

mod line;
mod pod;
mod remembered;
#[cfg(test)]
mod tests;

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use self::line::{split, tells_apart};
use self::pod::Pod;
use self::remembered::{LONGEST, Remembered};
use crate::guard::lines::Lines;

/// How many groups of a container are remembered: it gets a new one at each restart, and processes of the previous
/// one may still be there.
const MOST: usize = 4;

/// How many groups of other containers of the pod are remembered: more than pods have.
const MOST_OTHERS: usize = 32;

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

impl Groups {
    /// None is known yet; `own` is the file of this process, `first` that of the first one. `None` when
    /// `own` names no group.
    pub(crate) fn beside(own: &OwnedFd, first: &OwnedFd, lines: &mut Lines) -> Option<Self> {
        let mut all = |file| {
            let mut all = Vec::new();
            let read = lines.any(file, |line| {
                all.extend(split(line).map(|_| line.to_vec()));
                false
            });
            read.is_ok().then_some(all)
        };
        let (own, first) = (all(own)?, all(first)?);
        // Each hierarchy has one line in each of the files.
        let pods = own
            .iter()
            .filter_map(|own| first.iter().find_map(|first| Pod::of(own, first)))
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
    pub(crate) fn known(&self) -> usize {
        self.known.count()
    }

    /// Remembers where a process of the container is, by its file, if that tells it from us.
    pub(crate) fn learn(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<(), Errno> {
        if self.read(file, lines)? {
            self.known.learn(&self.news);
        }
        Ok(())
    }

    /// Remembers the line that was [read](Self::read) last as that of another container.
    pub(crate) fn learn_other(&mut self) {
        self.others.learn(&self.news);
    }

    /// Whether the process with this file is in the pod, and neither with us, nor with the first process, nor in a group
    /// that was learned of another container.
    pub(crate) fn is_strange(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
        let Self { others, pods, .. } = self;
        let mut is_beside = false;
        let is_known = lines.any(file, |line| {
            is_beside |= pods.iter().any(|pod| pod.has_beside_us(line));
            others.has(line)
        })?;
        Ok(is_beside && !is_known)
    }

    /// Reads the line that tells the process with this file from us, if there is one.
    pub(crate) fn read(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
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
    pub(crate) fn has(&mut self, file: &OwnedFd, lines: &mut Lines) -> Result<bool, Errno> {
        lines.any(file, |line| self.known.has(line))
    }
}
