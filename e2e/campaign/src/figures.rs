//! The results of a trial, and its violations.

use std::fmt::{self, Display};

use crate::sample::Sample;

/// The results of a trial, for the table at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// In the order of their importance.
    pub rows: Vec<Figure>,
    /// The spare times: from the end of a holder's program to the deletion of its node by the leader. Empty
    /// for trials that do not measure them.
    pub spares: Sample,
}

/// One question, and its measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// The promise, or the question.
    pub asked: String,
    pub measured: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violated(Vec<String>);

/// The violations of a trial so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Violations(Vec<String>);

impl Figures {
    pub(crate) fn row(&mut self, asked: impl Into<String>, measured: impl Into<String>) {
        self.rows.push(Figure {
            asked: asked.into(),
            measured: measured.into(),
        });
    }
}

impl Violations {
    pub(crate) fn add(&mut self, violation: impl Into<String>) {
        self.0.push(violation.into());
    }

    pub(crate) fn finish(self, figures: Figures) -> anyhow::Result<Figures> {
        if self.0.is_empty() {
            Ok(figures)
        } else {
            Err(Violated(self.0).into())
        }
    }
}

impl Display for Violated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} violations: {}", self.0.len(), self.0.join("; "))
    }
}

impl std::error::Error for Violated {}

/// Two columns, for users.
impl Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self
            .rows
            .iter()
            .map(|row| row.asked.len())
            .max()
            .unwrap_or_default();
        self.rows
            .iter()
            .try_for_each(|row| writeln!(f, "  {:width$}  {}", row.asked, row.measured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_fails_the_trial_and_says_what_it_was() {
        let mut violations = Violations::default();
        assert!(violations.clone().finish(Figures::default()).is_ok());
        violations.add("round 3: two ran");
        let error = violations.finish(Figures::default()).unwrap_err();
        assert_eq!(error.to_string(), "1 violations: round 3: two ran");
    }
}
