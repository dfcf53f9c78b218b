//! Circles between the modules of a crate.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::modules::Crate;
use crate::uses::{Used, used};

/// Names of a module from the root of its crate.
type Path = Vec<String>;

/// The modules of a crate, and the paths that each names.
struct Uses {
    of: BTreeMap<Path, Vec<Used>>,
}

/// Which of the modules below one module needs which, each with all that is below it, with one example for
/// each pair.
type Needs = BTreeMap<Path, BTreeMap<Path, String>>;

/// The circles of a crate, each in one line. The rule is explained in `tests/circles.rs`.
pub fn circles(of: &Crate) -> Vec<String> {
    let modules = of.modules.iter().filter(|module| !module.is_test);
    let uses = Uses {
        of: modules
            .map(|module| (module.path.clone(), used(module.tokens())))
            .collect(),
    };
    let needs = uses.needs();
    let mut told = BTreeSet::new();
    let mut lines = Vec::new();
    for module in needs.keys() {
        let Some(circle) = circle(&needs, module) else {
            continue;
        };
        // The search finds each circle from each of its modules.
        if told.insert(circle.iter().cloned().collect::<BTreeSet<_>>()) {
            lines.push(format!(
                "{}: {}",
                of.modules[0].file.display(),
                line(&needs, &circle)
            ));
        }
    }
    lines
}

// === impl Uses ===

impl Uses {
    /// The module that a path leads to from the module `from`; `None` for another crate.
    fn target(&self, from: &Path, path: &[String], depth: usize) -> Option<Path> {
        let (first, _) = path.split_first()?;
        let mut parts = path;
        let mut at = from.clone();
        match first.as_str() {
            "crate" => {
                at.clear();
                parts = &parts[1..];
            }
            "self" => parts = &parts[1..],
            "super" => {}
            child if self.of.contains_key(&below(from, child)) => {}
            _ => return None,
        }
        for part in parts {
            let child = below(&at, part);
            if part == "super" {
                at.pop();
            } else if self.of.contains_key(&child) {
                at = child;
            } else {
                return Some(self.handed_on(&at, part, depth).unwrap_or(at));
            }
        }
        Some(at)
    }

    /// The origin of a name that a module has by a `use` of its own.
    fn handed_on(&self, at: &Path, name: &str, depth: usize) -> Option<Path> {
        let source = self
            .of
            .get(at)?
            .iter()
            .find(|one| one.name.as_deref() == Some(name))?;
        // Rust does not allow two modules to import a name from each other, so this ends; the bound protects
        // against misread code.
        (depth < 16).then(|| self.target(at, &source.path, depth + 1))?
    }

    fn needs(&self) -> Needs {
        let mut needs = Needs::new();
        for (from, used) in &self.of {
            for one in used {
                let Some(to) = self.target(from, &one.path, 0) else {
                    continue;
                };
                let common = from
                    .iter()
                    .zip(&to)
                    .take_while(|(one, other)| one == other)
                    .count();
                // A module, and what is below it.
                if common == from.len() || common == to.len() {
                    continue;
                }
                let example = format!("{} names {}", shown(from), one.path.join("::"));
                let needed = needs.entry(from[..=common].to_vec()).or_default();
                needed.entry(to[..=common].to_vec()).or_insert(example);
            }
        }
        needs
    }
}

fn below(module: &[String], name: &str) -> Path {
    [module, &[name.to_owned()]].concat()
}

fn shown(module: &[String]) -> String {
    module.join("::")
}

/// The shortest way from a module back to itself, without the end.
fn circle(needs: &Needs, start: &Path) -> Option<Vec<Path>> {
    let mut ways = VecDeque::from([vec![start.clone()]]);
    let mut seen = BTreeSet::new();
    while let Some(way) = ways.pop_front() {
        for next in needs.get(way.last()?).into_iter().flat_map(BTreeMap::keys) {
            if next == start {
                return Some(way);
            }
            if seen.insert(next.clone()) {
                ways.push_back([&way[..], std::slice::from_ref(next)].concat());
            }
        }
    }
    None
}

fn line(needs: &Needs, circle: &[Path]) -> String {
    let steps = circle.iter().zip(circle.iter().cycle().skip(1));
    let steps: Vec<_> = steps
        .map(|(from, to)| format!("{} -> {} ({})", shown(from), shown(to), needs[from][to]))
        .collect();
    steps.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The circles of modules with these texts.
    fn found(modules: &[(&str, &str)]) -> usize {
        let of = modules.iter().map(|(path, text)| {
            let names = path.split("::").filter(|name| !name.is_empty());
            (names.map(str::to_owned).collect(), used(text.parse().unwrap()))
        });
        let uses = Uses { of: of.collect() };
        let needs = uses.needs();
        needs
            .keys()
            .filter(|module| circle(&needs, module).is_some())
            .count()
    }

    #[test]
    fn a_way_back_is_found_whichever_way_it_goes() {
        let both = [("a", "use crate::b::B;"), ("b", "fn f(a: super::a::A) {}")];
        assert_eq!(found(&both), 2);
        let one_way = [("a", "use crate::b::B;"), ("b", "")];
        assert_eq!(found(&one_way), 0);
        let through_the_root = [
            ("", "pub use a::A;"),
            ("a", "use crate::b::B;"),
            ("b", "use crate::A;"),
        ];
        assert_eq!(found(&through_the_root), 2);
        let of_three = [
            ("a", "use crate::b;"),
            ("b", "use crate::c;"),
            ("c", "use super::a;"),
        ];
        assert_eq!(found(&of_three), 3);
    }

    #[test]
    fn folders_count_whole_and_a_module_knows_what_is_below_it() {
        let folders = [
            ("a", ""),
            ("a::x", "use crate::b;"),
            ("b", ""),
            ("b::y", "use crate::a;"),
        ];
        assert_eq!(found(&folders), 2);
        let parent = [
            ("a", "mod x; use x::X;"),
            ("a::x", "use super::A; use crate::Root;"),
            ("", "use a::A;"),
        ];
        assert_eq!(found(&parent), 0);
    }
}
