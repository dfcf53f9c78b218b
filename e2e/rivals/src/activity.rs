//! When each contender ran, read from its recorder's lines: how long two ran at once, and how long none did.

use std::time::Duration;

use lockkeeper_judge::record::{Moment, Record};
use lockkeeper_lock::BootInstant;

/// Lines of a running recorder are 5 ms apart. A longer silence than this means that it did not run: it was stopped,
/// or had no processor.
const SILENCE: Duration = Duration::from_millis(50);

/// Who has written a line this short a time before the end of a round runs at its end: also one that had to wait for a
/// busy disk.
const AT_THE_END: Duration = Duration::from_secs(1);

/// A time in which one contender ran without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub contender: usize,
    pub token: i64,
    /// Its first line.
    pub from: BootInstant,
    /// Its last line.
    pub to: BootInstant,
}

/// The stretches of all contenders, by their beginning: one record for each contender.
pub fn stretches(records: &[Vec<Record>]) -> Vec<Stretch> {
    let mut all = Vec::new();
    for (contender, records) in records.iter().enumerate() {
        let mut current: Option<(Stretch, u32)> = None;
        for record in records {
            let begins = matches!(record.moment, Moment::Begin { .. });
            match &mut current {
                Some((stretch, pid))
                    if *pid == record.pid && !begins && record.at.saturating_since(stretch.to) <= SILENCE =>
                {
                    stretch.to = record.at;
                }
                _ => {
                    let stretch = Stretch {
                        contender,
                        token: record.token,
                        from: record.at,
                        to: record.at,
                    };
                    all.extend(current.replace((stretch, record.pid)).map(|(done, _)| done));
                }
            }
        }
        all.extend(current.map(|(done, _)| done));
    }
    all.sort_by_key(|stretch| stretch.from);
    all
}

/// For how long two contenders ran at once, in all. `None`: never; zero: a single line fell into the time of another.
pub fn overlap(stretches: &[Stretch]) -> Option<Duration> {
    let mut sum = None;
    for (index, one) in stretches.iter().enumerate() {
        for other in &stretches[index + 1..] {
            if other.from > one.to {
                break;
            }
            if other.contender != one.contender {
                let both = one.to.min(other.to).saturating_since(other.from);
                *sum.get_or_insert(Duration::ZERO) += both;
            }
        }
    }
    sum
}

/// Whether each contender that began to run had a higher token than all contenders before.
pub(crate) fn tokens_grow(stretches: &[Stretch]) -> bool {
    stretches.windows(2).all(|pair| {
        let goes_on = pair[0].contender == pair[1].contender && pair[0].token == pair[1].token;
        goes_on || pair[0].token < pair[1].token
    })
}

/// Whether each contender that was given the lock got a higher token than all that got it before, two at once or not.
pub(crate) fn tokens_of_holders_grow(records: &[Vec<Record>]) -> bool {
    let mut given: Vec<_> = records
        .iter()
        .enumerate()
        .flat_map(|(contender, records)| {
            let begins = records
                .iter()
                .filter(|record| matches!(record.moment, Moment::Begin { .. }));
            begins.map(move |record| (record.at, contender, record.token))
        })
        .collect();
    given.sort_unstable();
    given.windows(2).all(|pair| {
        let ((_, before, former), (_, after, token)) = (pair[0], pair[1]);
        former < token || (before == after && former == token)
    })
}

/// How long nobody ran at most between `since` and `until`. `None` if nobody runs at the end of that time: nobody ever ran
/// again.
pub fn gap(stretches: &[Stretch], since: BootInstant, until: BootInstant) -> Option<Duration> {
    let (mut covered, mut longest) = (since, Duration::ZERO);
    let within = stretches
        .iter()
        .filter(|stretch| stretch.to >= since && stretch.from <= until);
    for stretch in within {
        longest = longest.max(stretch.from.saturating_since(covered));
        covered = covered.max(stretch.to);
    }
    (until.saturating_since(covered) <= AT_THE_END).then_some(longest)
}

/// What a resource makes of the writes that takes the highest token that it has seen, and refuses lower ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AtResource {
    /// Writes of a contender after another one had written with a later token or, without tokens that grow, at all
    /// since the writer began.
    pub late: u32,
    /// Of these, how many the resource refuses.
    pub refused: u32,
}

/// Plays all lines, in the order of their times, as writes to such a resource.
pub(crate) fn at_resource(records: &[Vec<Record>]) -> AtResource {
    let mut writes: Vec<(BootInstant, usize, i64, bool)> = Vec::new();
    for (contender, records) in records.iter().enumerate() {
        writes.extend(records.iter().map(|record| {
            let begins = matches!(record.moment, Moment::Begin { .. });
            (record.at, contender, record.token, begins)
        }));
    }
    writes.sort_by_key(|write| write.0);
    let mut result = AtResource::default();
    let mut highest = i64::MIN;
    // Who began last: everybody else is late.
    let mut latest = None;
    for (_, contender, token, begins) in writes {
        if begins {
            latest = Some(contender);
        }
        if latest != Some(contender) {
            result.late += 1;
            result.refused += u32::from(token < highest);
        }
        highest = highest.max(token);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `b` begins, `.` is another line.
    fn record(pid: u32, token: i64, lines: &[(char, u64)]) -> Vec<Record> {
        lines
            .iter()
            .map(|&(kind, millis)| Record {
                moment: match kind {
                    'b' => Moment::Begin {
                        name: format!("p{pid}"),
                        access: lockkeeper_judge::record::Access::Write,
                    },
                    _ => Moment::Beat,
                },
                token,
                at: at(millis),
                pid,
            })
            .collect()
    }

    fn at(millis: u64) -> BootInstant {
        BootInstant::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn who_was_stopped_did_not_run_meanwhile() {
        let one = record(1, 7, &[('b', 0), ('.', 5), ('.', 10), ('.', 900), ('.', 905)]);
        let two = record(2, 8, &[('b', 100), ('.', 105), ('.', 150)]);
        let found = stretches(&[one, two]);
        assert_eq!(found.len(), 3);
        assert_eq!(overlap(&found), None);
        assert_eq!(gap(&found, at(10), at(905)), Some(Duration::from_millis(750)));
    }

    #[test]
    fn two_at_once_are_counted_and_a_single_line_is_zero_but_not_never() {
        let one = record(1, 7, &[('b', 0), ('.', 40), ('.', 80), ('.', 120)]);
        let two = record(2, 8, &[('b', 100), ('.', 140), ('.', 180)]);
        assert_eq!(
            overlap(&stretches(&[one.clone(), two])),
            Some(Duration::from_millis(20))
        );
        let touch = record(3, 9, &[('b', 60)]);
        assert_eq!(overlap(&stretches(&[one, touch])), Some(Duration::ZERO));
    }

    #[test]
    fn nobody_who_runs_again_is_no_gap_but_an_end() {
        let one = record(1, 7, &[('b', 0), ('.', 5)]);
        let found = stretches(&[one]);
        assert_eq!(gap(&found, at(5), at(30_000)), None);
    }

    #[test]
    fn a_token_has_grown_also_if_the_former_holder_goes_on_beside_the_next_one() {
        let former = &[('b', 0), ('.', 5), ('.', 200)];
        let next = &[('b', 100), ('.', 105), ('.', 250)];
        assert!(tokens_of_holders_grow(&[
            record(1, 7, former),
            record(2, 8, next)
        ]));
        assert!(!tokens_of_holders_grow(&[
            record(1, 7, former),
            record(2, 7, next)
        ]));
        assert!(!tokens_of_holders_grow(&[
            record(1, 7, former),
            record(2, 6, next)
        ]));
    }

    #[test]
    fn a_resource_refuses_late_writers_only_by_tokens_that_grow() {
        let late = &[('b', 0), ('.', 5), ('.', 200)];
        let next = &[('b', 100), ('.', 105), ('.', 250)];
        let grown = at_resource(&[record(1, 7, late), record(2, 8, next)]);
        assert_eq!(grown, AtResource { late: 1, refused: 1 });
        let same = at_resource(&[record(1, 7, late), record(2, 7, next)]);
        assert_eq!(same, AtResource { late: 1, refused: 0 });
    }
}
