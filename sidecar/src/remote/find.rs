//! Which nodes match a pattern of paths.

use std::collections::BTreeSet;

use lockkeeper_daemon::exit::{Exit, Failure};
use lockkeeper_daemon::sentence::few;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{is_contender, path};

use super::ensemble::{Ensemble, failure};
use crate::args::{Pattern, Step};

/// Most nodes that are looked at: each costs the ensemble some questions. The operator follows up to 12,000 locks, and each
/// has a control node.
const MOST: usize = 50_000;

/// Longest name of a lock, in bytes: other clients choose names of up to 1 MB.
const LONGEST_NAME: usize = 1_024;

/// What a pattern matches.
#[derive(Default)]
pub(super) struct Found {
    /// The paths of nodes that may be locks, below the chroot.
    pub(super) paths: BTreeSet<String>,
    pub(super) left_out: LeftOut,
}

/// Nodes that could not be read.
#[derive(Default)]
pub(super) struct LeftOut {
    /// Which, and why.
    pub(super) nodes: Vec<String>,
    /// Whether a right was missing.
    is_refused: bool,
}

impl LeftOut {
    /// Leaves a node out and goes on with the others, if the connection is still of use.
    pub(super) fn add(&mut self, ensemble: &Ensemble, failure: Failure) -> Result<(), Failure> {
        if !ensemble.connection.is_intact() {
            return Err(failure);
        }
        self.is_refused |= failure.exit == Exit::Refused;
        self.nodes.push(failure.sentence);
        Ok(())
    }

    /// What to tell of them; nothing if there are none.
    pub(super) fn sentence(&self) -> Option<String> {
        (!self.nodes.is_empty()).then(|| format!("left out: {}", few(&self.nodes)))
    }

    /// The error where nothing else was found: whether a right was missing, and of what.
    pub(super) fn refusal(&self) -> Option<Failure> {
        let sentence = self.sentence().filter(|_| self.is_refused)?;
        Some(Failure::new(Exit::Refused, sentence))
    }
}

/// The nodes that match. Contenders, and what is ZooKeeper's own, are no locks and are not among them.
///
/// # Errors
/// When the connection is lost, when there is no chroot, and when more than 50,000 nodes would have to be looked at.
pub(super) async fn find(ensemble: &Ensemble, pattern: &Pattern) -> Result<Found, Failure> {
    let mut found = Found::default();
    let mut seen = BTreeSet::new();
    // A node may have to be looked at for several steps.
    let mut nodes = BTreeSet::new();
    let mut todo = vec![(String::new(), 0)];
    while let Some((node, at)) = todo.pop() {
        if !seen.insert((node.clone(), at)) {
            continue;
        }
        let below = |name: &str| format!("{node}/{name}");
        let step = match pattern.steps().get(at) {
            Some(step) => step,
            None if node.is_empty() => continue,
            None => {
                found.paths.insert(node);
                continue;
            }
        };
        if let Step::Name(name) = step {
            // Whether it is there shows when it is read.
            todo.push((below(name), at + 1));
            continue;
        }
        let names = match list(ensemble, &node).await {
            Ok(names) => names,
            Err(failure) => {
                found.left_out.add(ensemble, failure)?;
                Vec::new()
            }
        };
        match step {
            Step::Any => {
                todo.push((node.clone(), at + 1));
                todo.extend(names.iter().map(|name| (below(name), at)));
            }
            Step::Form(form) => {
                let matching = names.iter().filter(|name| form.matches(name));
                todo.extend(matching.map(|name| (below(name), at + 1)));
            }
            Step::Name(_) => {}
        }
        nodes.extend(names.iter().map(|name| below(name)));
        if nodes.len() > MOST {
            return Err(Failure::usage(format!(
                "more than {MOST} nodes would have to be looked at for this --lock: write a narrower pattern, such as \
                 /locks/shop-*"
            )));
        }
    }
    Ok(found)
}

/// The children that may be locks or have some below them.
async fn list(ensemble: &Ensemble, node: &str) -> Result<Vec<String>, Failure> {
    let shown = if node.is_empty() { "/" } else { node };
    let failed = |error: EnsembleError| failure(&error, &format!("cannot list {shown}"));
    let names = ensemble.children(shown).await.map_err(failed)?;
    if names.is_none() && node.is_empty() {
        return Err(Failure::unavailable(format!(
            "there is no node {} in this ensemble, which --connect names as its chroot: correct the path, or create the node",
            ensemble.whole(shown)
        )));
    }
    let mut names = names.unwrap_or_default();
    names.retain(|name| {
        let is_own = path::is_reserved(&ensemble.whole(&format!("{node}/{name}")));
        name.len() <= LONGEST_NAME && !is_contender(name) && !is_own
    });
    Ok(names)
}
