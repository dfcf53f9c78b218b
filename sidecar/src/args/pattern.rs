//! Patterns of paths.

use std::fmt;
use std::str::FromStr;

use clap::Args;

/// Which locks a command is about.
#[derive(Debug, Args)]
pub struct PatternArgs {
    /// Pattern of the locks' paths: * stands for any part of a name, ** for any number of names
    // Not LOCKKEEPER_LOCK: that is set for the command of each run, and names one lock.
    #[arg(
        long = "lock",
        env = "LOCKKEEPER_LOCKS",
        value_name = "PATTERN",
        default_value = "/**"
    )]
    pub pattern: Pattern,
}

/// A pattern of absolute paths, name by name.
#[derive(Clone, Debug)]
pub struct Pattern(Vec<Step>);

/// What one step of a pattern allows.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Name(String),
    /// Names of this form.
    Form(glob::Pattern),
    /// Any number of names, none as well.
    Any,
}

/// Why a text is no pattern, in one sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPattern(String);

impl Pattern {
    /// What each name of a path has to be, from the first on.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| match step {
            Step::Name(name) => write!(f, "/{name}"),
            Step::Form(form) => write!(f, "/{form}"),
            Step::Any => f.write_str("/**"),
        })
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        const EXAMPLE: &str = "such as /locks/*";
        let names = text
            .strip_prefix('/')
            .ok_or_else(|| InvalidPattern(format!("a pattern of paths begins with a slash, {EXAMPLE}")))?;
        let step = |name: &str| match name {
            "" => Err(InvalidPattern(format!(
                "a pattern of paths has a name after each slash, {EXAMPLE}"
            ))),
            "**" => Ok(Step::Any),
            name if name.contains(['*', '?', '[']) => glob::Pattern::new(name)
                .map(Step::Form)
                .map_err(|error| InvalidPattern(format!("{name} is no pattern of names: {}", error.msg))),
            name => Ok(Step::Name(name.to_owned())),
        };
        names.split('/').map(step).collect::<Result<_, _>>().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_a_path_with_stars_and_all_else_is_refused_with_what_would_be_right() {
        let steps = |text: &str| {
            text.parse::<Pattern>()
                .map(|pattern| format!("{:?}", pattern.steps()))
        };
        assert_eq!(steps("/locks/**").as_deref(), Ok("[Name(\"locks\"), Any]"));
        for text in ["/locks/**", "/locks/[ab]?/x*"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert!(steps("/locks/r*").is_ok_and(|steps| steps.contains("Form")));
        for (text, message) in [
            ("locks/*", "begins with a slash, such as /locks/*"),
            ("/locks//*", "a name after each slash"),
            ("/", "a name after each slash"),
            ("/a***", "no pattern of names"),
        ] {
            let error = steps(text).unwrap_err().to_string();
            assert!(error.contains(message), "{text}: {error}");
        }
    }
}
