//! Which nodes match a pattern of paths.

use std::collections::BTreeSet;

use lockkeeper_daemon::exit::Failure;
use lockkeeper_lock::ensemble::EnsembleError;
use lockkeeper_lock::{is_contender, path};

use super::ensemble::{Ensemble, failure};
use crate::args::Pattern;
use crate::args::Step;

/// Most nodes that are looked at: each costs the ensemble a question.
const MOST: usize = 20_000;

/// The paths of the nodes that match, in their order, below the chroot. Contenders, and what is ZooKeeper's own, are no
/// locks and are left out.
///
/// # Errors
/// When a node cannot be listed, except for a missing right: such nodes are left out, as by `ls` in a shell. When more
/// than 20,000 nodes would have to be looked at.
pub(super) async fn find(ensemble: &Ensemble, pattern: &Pattern) -> Result<BTreeSet<String>, Failure> {
    let mut found = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut todo = vec![(String::new(), 0)];
    let mut asked = 0;
    while let Some((node, at)) = todo.pop() {
        if !seen.insert((node.clone(), at)) {
            continue;
        }
        let below = |name: &str| format!("{node}/{name}");
        let Some(step) = pattern.steps().get(at) else {
            if !node.is_empty() {
                found.insert(node);
            }
            continue;
        };
        if let Step::Name(name) = step {
            // Whether it is there shows when it is read.
            todo.push((below(name), at + 1));
            continue;
        }
        asked += 1;
        if asked + found.len() > MOST {
            return Err(Failure::usage(format!(
                "more than {MOST} nodes match --lock: write a narrower pattern, such as /locks/*"
            )));
        }
        let names = list(ensemble, &node).await?;
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
    }
    Ok(found)
}

/// The children that may be locks or have some below them.
async fn list(ensemble: &Ensemble, node: &str) -> Result<Vec<String>, Failure> {
    let node = if node.is_empty() { "/" } else { node };
    let mut names = match ensemble.children(node).await {
        Ok(names) => names,
        Err(EnsembleError::NoAuth) => Vec::new(),
        Err(error) => return Err(failure(&error, &format!("cannot list {node}"))),
    };
    names.retain(|name| {
        let child = if node == "/" {
            format!("/{name}")
        } else {
            format!("{node}/{name}")
        };
        !is_contender(name) && !path::is_reserved(&ensemble.whole(&child))
    });
    Ok(names)
}
