//! Why a registry does not tell the command of an image, and whether that may pass.

use hyper::StatusCode;
use oci_spec::distribution::Reference;

use super::configuration::Unusable;
use super::exchange::NoAnswer;
use crate::admission::inject::ImageUnknown;

/// Why a registry does not say.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("{0}")]
    NoAnswer(#[from] NoAnswer),
    #[error("it answers with status {}", .0.as_u16())]
    Status(StatusCode),
    #[error("{0}")]
    Unusable(#[from] Unusable),
    #[error("it leads to another host or scheme, which --registry-redirects does not name")]
    Elsewhere,
    #[error("it leads from one place to the next")]
    Circle,
    #[error("it wants tokens from a place without TLS")]
    OpenRealm,
    #[error("it asks for credentials in a way that is not known")]
    Challenge,
    #[error("its token server answers with status {}", .0.as_u16())]
    NoToken(StatusCode),
    #[error("its token server: {0}")]
    NoTokenServer(NoAnswer),
    #[error("its token server gives no token")]
    Token,
    #[error("its name cannot be one of a server")]
    Name,
}

/// What became of one credential after the other.
#[derive(Default)]
pub(super) struct Problems {
    /// The one that counts: its credential is the one that was meant.
    first: Option<Problem>,
    is_passing: bool,
}

impl Problem {
    /// Whether asking again would be answered in the same way. A mode of guarding must not depend on whether a
    /// registry was up for three seconds, so all that may pass counts as passing.
    fn is_lasting(&self) -> bool {
        let is_fact = |status: &StatusCode| matches!(status.as_u16(), 401 | 403 | 404 | 410);
        match self {
            Self::Status(status) | Self::NoToken(status) => is_fact(status),
            Self::Unusable(unusable) => *unusable != Unusable::Digest,
            Self::NoAnswer(no_answer) | Self::NoTokenServer(no_answer) => *no_answer == NoAnswer::Forbidden,
            Self::Elsewhere | Self::Circle | Self::OpenRealm | Self::Challenge | Self::Name => true,
            Self::Token => false,
        }
    }
}

impl Problems {
    pub(super) fn add(&mut self, problem: Problem) {
        // Any of the credentials might have been let in.
        self.is_passing |= !problem.is_lasting();
        self.first.get_or_insert(problem);
    }

    /// None of them where the registry could not even be named.
    pub(super) fn about(self, image: &Reference) -> ImageUnknown {
        let problem = self.first.unwrap_or(Problem::Name);
        let problem = format!("the registry of {image} does not tell its command: {problem}");
        match self.is_passing {
            true => ImageUnknown::Passing(problem),
            false => ImageUnknown::Lasting(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(problems: impl IntoIterator<Item = Problem>) -> ImageUnknown {
        let mut all = Problems::default();
        problems.into_iter().for_each(|problem| all.add(problem));
        all.about(&"registry.example/app:1".parse().unwrap())
    }

    #[test]
    fn only_facts_last_and_a_registry_that_is_busy_or_away_says_nothing_about_an_image() {
        let status = |code| Problem::Status(StatusCode::from_u16(code).unwrap());
        for code in [401, 403, 404, 410] {
            assert!(
                matches!(unknown([status(code)]), ImageUnknown::Lasting(_)),
                "{code}"
            );
        }
        for code in [408, 429, 500, 502, 503, 504] {
            assert!(
                matches!(unknown([status(code)]), ImageUnknown::Passing(_)),
                "{code}"
            );
        }
        assert!(Problem::NoToken(StatusCode::FORBIDDEN).is_lasting());
        assert!(!Problem::NoToken(StatusCode::TOO_MANY_REQUESTS).is_lasting());
        assert!(Problem::NoAnswer(NoAnswer::Forbidden).is_lasting());
        for passing in [
            NoAnswer::Unreachable,
            NoAnswer::Untrusted,
            NoAnswer::Broken,
            NoAnswer::TooLong,
            NoAnswer::TooSlow,
        ] {
            assert!(!Problem::NoAnswer(passing).is_lasting(), "{passing:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_not_trusted_says_where_its_authority_can_be_named() {
        let unknown = unknown([Problem::NoAnswer(NoAnswer::Untrusted)]);
        let sentence = unknown.to_string();
        assert!(
            sentence.contains("add that authority to registry.ca of the chart"),
            "{sentence}"
        );
    }

    #[test]
    fn what_passes_for_one_credential_passes_for_all_and_the_first_is_named() {
        let status = |code| Problem::Status(StatusCode::from_u16(code).unwrap());
        let unknown = unknown([status(403), status(503)]);
        let ImageUnknown::Passing(problem) = &unknown else {
            panic!("{unknown:?}")
        };
        assert!(problem.contains("403") && !problem.contains("503"), "{problem}");
    }
}
