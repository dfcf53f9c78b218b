//! The table: the verdict on each rule after its removal.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::cargo::{Cargo, Outcome, Program, is_it, now};
use crate::list::{Rule, Test};
use crate::scratch::{Scratch, groups};

/// The result of the removal of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These tests failed.
    Noticed(String),
    /// All tests pass: the rule is not tested.
    NotNoticed,
    /// The test is missing, or fails with all rules in force, so it proves nothing.
    Fails,
    /// The test did not end in time.
    Endless,
}

#[derive(Clone, Debug)]
pub struct Line {
    pub rule: Rule,
    pub verdict: Verdict,
    pub time: Duration,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Noticed(test) => f.write_str(test),
            Self::NotNoticed => f.write_str("NOT NOTICED"),
            Self::Fails => f.write_str("THE TEST DOES NOT SUCCEED WITH ALL RULES"),
            Self::Endless => f.write_str("THE TEST DOES NOT END"),
        }
    }
}

impl Verdict {
    /// Whether a test fails without the rule.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::Noticed(_))
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, verdict, time } = self;
        write!(f, "{}\n    {} | {verdict} | {time:.1?}", rule.rule, rule.promised)
    }
}

/// Removes each of these rules, and passes a line for each to `tell`.
///
/// # Errors
/// When a rule does not fit the code; when the code does not build with its switches; when it was interrupted.
pub fn fill(
    cargo: &Cargo,
    scratch: &Scratch,
    rules: &[&Rule],
    root: &Path,
    any: bool,
    mut tell: impl FnMut(&Line),
) -> Result<Vec<Line>> {
    let numbered: Vec<_> = rules.iter().copied().enumerate().collect();
    let mut lines = Vec::new();
    for group in groups(root, &numbered)? {
        scratch.copy(&group)?;
        let targets = by_target(&group);
        let first: Vec<_> = targets.iter().map(|of_target| &of_target[0].1.test).collect();
        eprintln!("building the code with {} switches", group.len());
        let programs = cargo.build(&first)?;
        for (program, of_target) in programs.into_iter().zip(targets) {
            let tests = Tests::with_all_rules(cargo, program, &of_target, any)?;
            for (number, rule) in of_target {
                let line = tests.without(number, rule, any)?;
                tell(&line);
                lines.push((number, line));
            }
        }
    }
    lines.sort_by_key(|(number, _)| *number);
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

/// The rules whose tests are built together, in the order of the list.
fn by_target<'a>(group: &[(usize, &'a Rule)]) -> Vec<Vec<(usize, &'a Rule)>> {
    let mut all: Vec<Vec<(usize, &Rule)>> = Vec::new();
    let target = |rule: &Rule| (rule.test.package.clone(), rule.test.target.clone());
    for (number, rule) in group {
        match all.iter_mut().find(|one| target(one[0].1) == target(rule)) {
            Some(one) => one.push((*number, rule)),
            None => all.push(vec![(*number, rule)]),
        }
    }
    all
}

/// The tests of a target, which succeed with all rules in force.
struct Tests<'a> {
    cargo: &'a Cargo,
    program: Program,
    /// Their results with all rules in force, by their variables.
    good: Vec<(BTreeMap<String, String>, Outcome)>,
}

impl<'a> Tests<'a> {
    fn with_all_rules(
        cargo: &'a Cargo,
        program: Program,
        rules: &[(usize, &Rule)],
        any: bool,
    ) -> Result<Self> {
        let Test { package, target, .. } = &rules[0].1.test;
        let mut good = Vec::new();
        for (at, (_, rule)) in rules.iter().enumerate() {
            let same = |(_, other): &&(usize, &Rule)| other.with == rule.with;
            if rules[..at].iter().any(|other| same(&other)) {
                continue;
            }
            let names = rules.iter().filter(same).map(|(_, rule)| rule.test.name.as_str());
            let names: Vec<_> = names.filter(|_| !any).collect();
            let outcome = cargo.run_tests(&program, &names, &rule.with, None)?;
            ensure!(
                !outcome.is_aborted && !outcome.is_endless,
                "{package}/{target} does not come to its end with all rules"
            );
            good.push((rule.with.clone(), outcome));
        }
        Ok(Self { cargo, program, good })
    }

    /// The result of the test without its rule; with `any`, of all tests of the target.
    fn without(&self, number: usize, rule: &Rule, any: bool) -> Result<Line> {
        let begun = now();
        let name = rule.test.name.as_str();
        let is_good = |(with, outcome): &(_, Outcome)| *with == rule.with && outcome.has_passed(name);
        if !self.good.iter().any(is_good) {
            return Ok(Line {
                rule: rule.clone(),
                verdict: Verdict::Fails,
                time: Duration::ZERO,
            });
        }
        let names = if any { &[][..] } else { &[name] };
        let outcome = self
            .cargo
            .run_tests(&self.program, names, &rule.with, Some(number))?;
        let failed = outcome.failed.iter().filter(|failed| any || is_it(failed, name));
        let failed: Vec<_> = failed.map(String::as_str).collect();
        let verdict = if !failed.is_empty() {
            Verdict::Noticed(failed.join(", "))
        } else if outcome.is_aborted {
            Verdict::Noticed(format!("{name} (aborted)"))
        } else if outcome.is_endless {
            Verdict::Endless
        } else {
            Verdict::NotNoticed
        };
        Ok(Line {
            rule: rule.clone(),
            verdict,
            time: now() - begun,
        })
    }
}
