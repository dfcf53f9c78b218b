//! What is asked of a lock when nothing breaks: small scripts of steps, and what the outcomes of their steps say.

use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};

/// How long a step that gives up by itself is to wait.
pub(crate) const WAIT: Duration = Duration::from_secs(1);

/// A question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// Its holder gets it a second time.
    Reentrant,
    /// A call returns at once while another one holds it.
    Try,
    /// A call gives up after a time.
    Timed,
    /// Several hold it at once, and not everybody: readers, or as many as there are permits.
    Shared,
}

/// All of them, in the order of the page.
pub const PROBES: &[Probe] = &[Probe::Reentrant, Probe::Try, Probe::Timed, Probe::Shared];

/// What a client of the lock is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// As in the rounds.
    Acquire,
    /// The same, by who has it already.
    Again,
    /// Without waiting.
    Try,
    /// For [`WAIT`].
    Timed,
    /// As a reader, or with one of two permits.
    Share,
    /// In the way that sharing excludes: as a writer, or with one permit more than there are.
    Exceed,
    Release,
}

impl Verb {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Acquire => "acquire",
            Self::Again => "again",
            Self::Try => "try",
            Self::Timed => "timed",
            Self::Share => "share",
            Self::Exceed => "exceed",
            Self::Release => "release",
        }
    }
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Outcome {
    /// It has the lock; of a release: it has given it back.
    Got,
    /// The library says that another one has it.
    Busy,
    /// Nothing was said for as long as a step may take.
    Waits,
    /// The library says that this is wrong.
    Refused,
    /// The library has no such call.
    NotOffered,
}

/// A step that was done.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct Done {
    pub outcome: Outcome,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// The call of the library.
    #[serde(default)]
    pub call: Option<String>,
    /// What the library said.
    #[serde(default)]
    pub what: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    Yes,
    No,
    NotOffered,
}

/// What a probe has found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    pub answer: Answer,
    /// The call of the library that was made, or the option of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// What was observed.
    pub seen: String,
}

impl Found {
    pub(crate) fn new(answer: Answer, seen: impl Into<String>) -> Self {
        Self {
            answer,
            call: None,
            seen: seen.into(),
        }
    }
}

/// What is known of a lock that the judgement needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// It is free when its holder has released it.
    Free,
    /// It is its former holder's until the lease ends.
    AfterItsLease,
}

impl Probe {
    /// Its name on the command line of a driver.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Try => "try",
            Self::Timed => "timed",
            Self::Shared => "shared",
        }
    }

    /// Which client does what. Each has a client of its own.
    pub(crate) fn script(self) -> &'static [(char, Verb)] {
        match self {
            Self::Reentrant => &[
                ('a', Verb::Acquire),
                ('a', Verb::Again),
                ('a', Verb::Release),
                ('b', Verb::Acquire),
            ],
            Self::Try => &[
                ('a', Verb::Acquire),
                ('b', Verb::Try),
                ('a', Verb::Release),
                ('b', Verb::Try),
            ],
            Self::Timed => &[
                ('a', Verb::Acquire),
                ('b', Verb::Timed),
                ('a', Verb::Release),
                ('b', Verb::Timed),
            ],
            Self::Shared => &[('a', Verb::Share), ('b', Verb::Share), ('c', Verb::Exceed)],
        }
    }

    /// What the steps of the script say.
    ///
    /// # Errors
    /// When they say nothing of the question: a free lock was not got, or steps are missing.
    pub(crate) fn judge(self, done: &[Done], released: Released) -> anyhow::Result<Found> {
        ensure!(
            done.len() == self.script().len(),
            "{} of {} steps were done: {done:?}",
            done.len(),
            self.script().len()
        );
        let asked = if self == Self::Shared { &done[0] } else { &done[1] };
        if asked.outcome == Outcome::NotOffered {
            return Ok(Found::new(Answer::NotOffered, "no such call"));
        }
        if self != Self::Shared {
            ensure!(
                done[0].outcome == Outcome::Got,
                "the free lock was not got: {done:?}"
            );
        }
        let (answer, seen) = match self {
            Self::Reentrant => again(&done[1], &done[3]),
            Self::Try => gives_up(&done[1], Duration::ZERO),
            Self::Timed => gives_up(&done[1], WAIT),
            Self::Shared => shares(done),
        };
        if matches!(self, Self::Try | Self::Timed) && answer == Answer::Yes && released == Released::Free {
            ensure!(
                done[3].outcome == Outcome::Got,
                "the lock was given back, and not got: {done:?}"
            );
        }
        Ok(Found {
            answer,
            call: asked.call.clone(),
            seen,
        })
    }
}

/// The second acquisition of the holder, and that of another one after one release.
fn again(second: &Done, other: &Done) -> (Answer, String) {
    match (second.outcome, other.outcome) {
        (Outcome::Got, Outcome::Got) => (Answer::Yes, "one release gives it away".to_owned()),
        (Outcome::Got, _) => (Answer::Yes, "each acquisition wants its release".to_owned()),
        (Outcome::Refused, _) => (Answer::No, refused(second)),
        (Outcome::Busy, _) => (Answer::No, "finds it taken".to_owned()),
        _ => (Answer::No, "waits for itself".to_owned()),
    }
}

/// Whether it was said, after this time and not much later, that another one has it.
fn gives_up(done: &Done, after: Duration) -> (Answer, String) {
    let took = Duration::from_millis(done.ms);
    match done.outcome {
        // A library that looks now and then does not wait for a last look that would come too late.
        Outcome::Busy if took < after / 2 => (Answer::No, format!("gives up after {} ms", done.ms)),
        Outcome::Busy if took < after + WAIT => (Answer::Yes, format!("gives up after {} ms", done.ms)),
        Outcome::Busy => (Answer::No, format!("gives up after {} ms only", done.ms)),
        Outcome::Got => (Answer::No, "gets what another one holds".to_owned()),
        Outcome::Refused => (Answer::No, refused(done)),
        Outcome::Waits | Outcome::NotOffered => (Answer::No, "waits".to_owned()),
    }
}

fn shares(done: &[Done]) -> (Answer, String) {
    match (done[0].outcome, done[1].outcome, done[2].outcome) {
        (Outcome::Got, Outcome::Got, Outcome::Got) => (Answer::No, "excludes nobody".to_owned()),
        (Outcome::Got, Outcome::Got, _) => {
            let with = done[2].call.as_deref().unwrap_or("the same once more");
            (Answer::Yes, format!("two hold, and {with} is kept out"))
        }
        (Outcome::Refused, ..) => (Answer::No, refused(&done[0])),
        (_, Outcome::Refused, _) => (Answer::No, refused(&done[1])),
        _ => (Answer::No, "the second one waits".to_owned()),
    }
}

fn refused(done: &Done) -> String {
    format!("refused: {}", done.what.as_deref().unwrap_or("without a word"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(outcome: Outcome, ms: u64) -> Done {
        Done {
            outcome,
            ms,
            call: Some("call()".to_owned()),
            what: Some("held".to_owned()),
        }
    }

    /// The answer to these outcomes, of which the second one took so long.
    fn judged(probe: Probe, outcomes: &[Outcome], ms: u64) -> anyhow::Result<Found> {
        let steps: Vec<_> = outcomes.iter().map(|&outcome| done(outcome, ms)).collect();
        probe.judge(&steps, Released::Free)
    }

    use Outcome::{Busy, Got, NotOffered, Refused, Waits};

    #[test]
    fn a_lock_is_reentrant_if_its_holder_gets_it_again_and_the_page_says_whether_it_counts() {
        let of = |outcomes: &[Outcome]| judged(Probe::Reentrant, outcomes, 3).unwrap();
        let counts = of(&[Got, Got, Got, Waits]);
        assert_eq!(
            (counts.answer, counts.seen.as_str()),
            (Answer::Yes, "each acquisition wants its release")
        );
        assert_eq!(of(&[Got, Got, Got, Got]).seen, "one release gives it away");
        assert_eq!(of(&[Got, Waits, Waits, Waits]).answer, Answer::No);
        assert_eq!(of(&[Got, Busy, Got, Got]).seen, "finds it taken");
        let refused = of(&[Got, Refused, Got, Got]);
        assert_eq!(
            (refused.answer, refused.seen.as_str()),
            (Answer::No, "refused: held")
        );
        assert_eq!(
            of(&[Got, NotOffered, Got, Got]),
            Found::new(Answer::NotOffered, "no such call")
        );
    }

    #[test]
    fn a_try_answers_at_once_and_a_timed_call_after_its_time_and_neither_says_a_free_lock_to_be_busy() {
        let outcomes = [Got, Busy, Got, Got];
        let answers =
            |ms| [Probe::Try, Probe::Timed].map(|probe| judged(probe, &outcomes, ms).unwrap().answer);
        assert_eq!(answers(5), [Answer::Yes, Answer::No]);
        assert_eq!(answers(1005), [Answer::No, Answer::Yes]);
        assert_eq!(answers(4000), [Answer::No, Answer::No]);
        for probe in [Probe::Try, Probe::Timed] {
            assert_eq!(
                judged(probe, &[Got, Got, Got, Got], 5).unwrap().answer,
                Answer::No
            );
            assert_eq!(
                judged(probe, &[Got, Waits, Waits, Waits], 5).unwrap().answer,
                Answer::No
            );
        }
        assert!(judged(Probe::Try, &[Got, Busy, Got, Busy], 5).is_err());
        let steps: Vec<_> = [Got, Busy, Got, Busy].map(|outcome| done(outcome, 5)).into();
        let kept = Probe::Try.judge(&steps, Released::AfterItsLease).unwrap();
        assert_eq!(kept.answer, Answer::Yes);
    }

    #[test]
    fn sharing_lets_two_hold_and_keeps_one_out() {
        let of = |outcomes: &[Outcome]| judged(Probe::Shared, outcomes, 3).unwrap();
        assert_eq!(of(&[Got, Got, Waits]).answer, Answer::Yes);
        assert_eq!(of(&[Got, Got, Busy]).answer, Answer::Yes);
        assert_eq!(of(&[Got, Got, Got]).answer, Answer::No);
        assert_eq!(of(&[Got, Waits, Waits]).answer, Answer::No);
        assert_eq!(
            of(&[NotOffered, NotOffered, NotOffered]).answer,
            Answer::NotOffered
        );
    }

    #[test]
    fn a_probe_in_which_nobody_got_the_free_lock_says_nothing() {
        let nobody = judged(Probe::Try, &[Waits, Busy, Waits, Busy], 5).unwrap_err();
        assert!(nobody.to_string().contains("free lock"), "{nobody}");
        assert!(judged(Probe::Try, &[Got, Busy], 5).is_err());
    }
}
