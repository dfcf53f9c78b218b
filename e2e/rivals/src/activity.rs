//! When each program ran, read from its recorder's lines: how long two ran at once, and how long none did.
//!
//! A program runs from its first line to its last one, however late a line in between comes on a busy machine. It did not
//! run only while the harness had stopped its machine.

use std::collections::BTreeMap;
use std::time::Duration;

use lockkeeper_judge::record::{Moment, Record};
use lockkeeper_lock::BootInstant;

/// Lines of a running recorder are 5 ms apart. Around a [`Pause`] a longer silence than this is that pause.
const SILENCE: Duration = Duration::from_millis(50);

/// Who has written a line this short a time before the end of a round runs at its end: also one that had to wait for a
/// busy disk.
const AT_THE_END: Duration = Duration::from_secs(1);

/// What the harness did to the machine of a contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pause {
    pub contender: usize,
    /// After it was stopped.
    pub from: BootInstant,
    /// Before it was told to go on.
    pub to: BootInstant,
}

impl Pause {
    /// Whether a silence of a contender's program is this pause.
    fn is(&self, contender: usize, since: BootInstant, until: BootInstant) -> bool {
        self.contender == contender
            && self.from < until
            && self.to > since
            && until.saturating_since(since) > SILENCE
    }
}

/// A time in which one program ran without interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    pub contender: usize,
    /// Which of all programs: a contender that gets the lock again starts another one, and nobody but the lock keeps the
    /// former one from running beside it.
    pub program: usize,
    pub token: i64,
    /// Its first line.
    pub from: BootInstant,
    /// Its last line.
    pub to: BootInstant,
}

/// The stretches of all programs, by their beginning: one record for each contender.
pub fn stretches(records: &[Vec<Record>], pauses: &[Pause]) -> Vec<Stretch> {
    let mut all: Vec<Stretch> = Vec::new();
    let mut programs = 0;
    for (contender, records) in records.iter().enumerate() {
        // Where the last stretch of each process is: their lines may alternate.
        let mut last: BTreeMap<u32, usize> = BTreeMap::new();
        for record in records {
            let begins = matches!(record.moment, Moment::Begin { .. });
            let former = last.get(&record.pid).copied().filter(|_| !begins);
            if let Some(former) = former {
                let stretch: &mut Stretch = &mut all[former];
                let was_stopped = |pause: &Pause| pause.is(contender, stretch.to, record.at);
                if !pauses.iter().any(was_stopped) {
                    stretch.to = record.at;
                    continue;
                }
            }
            let program = former.map_or(programs, |former| all[former].program);
            programs = programs.max(program + 1);
            last.insert(record.pid, all.len());
            all.push(Stretch {
                contender,
                program,
                token: record.token,
                from: record.at,
                to: record.at,
            });
        }
    }
    all.sort_by_key(|stretch| stretch.from);
    all
}

/// For how long two programs ran at once, in all. `None`: never; zero: a single line fell into the time of another.
pub fn overlap(stretches: &[Stretch]) -> Option<Duration> {
    let mut sum = None;
    for (index, one) in stretches.iter().enumerate() {
        for other in &stretches[index + 1..] {
            if other.from > one.to {
                break;
            }
            if other.program != one.program {
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
    /// Writes of a program after another one had begun.
    pub late: u32,
    /// Of these, how many the resource refuses.
    pub refused: u32,
}

/// Plays all lines, in the order of their times, as writes to such a resource.
pub(crate) fn at_resource(records: &[Vec<Record>]) -> AtResource {
    let mut writes: Vec<(BootInstant, (usize, u32), i64, bool)> = Vec::new();
    for (contender, records) in records.iter().enumerate() {
        writes.extend(records.iter().map(|record| {
            let begins = matches!(record.moment, Moment::Begin { .. });
            (record.at, (contender, record.pid), record.token, begins)
        }));
    }
    writes.sort_by_key(|write| write.0);
    let mut result = AtResource::default();
    let mut highest = i64::MIN;
    // Who began last: everybody else is late.
    let mut latest = None;
    for (_, program, token, begins) in writes {
        if begins {
            latest = Some(program);
        }
        if latest != Some(program) {
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

    fn pause(contender: usize, from: u64, to: u64) -> [Pause; 1] {
        let (from, to) = (at(from), at(to));
        [Pause { contender, from, to }]
    }

    #[test]
    fn who_was_stopped_did_not_run_meanwhile_and_who_was_only_silent_did() {
        let one = record(1, 7, &[('b', 0), ('.', 5), ('.', 10), ('.', 900), ('.', 905)]);
        let two = record(2, 8, &[('b', 100), ('.', 105), ('.', 150)]);
        let records = [one, two];
        let found = stretches(&records, &pause(0, 8, 899));
        assert_eq!(found.len(), 3);
        assert_eq!(overlap(&found), None);
        assert_eq!(gap(&found, at(10), at(905)), Some(Duration::from_millis(750)));
        for silent in [stretches(&records, &[]), stretches(&records, &pause(1, 8, 899))] {
            assert_eq!(overlap(&silent), Some(Duration::from_millis(50)));
        }
    }

    #[test]
    fn who_is_silent_again_after_a_pause_runs() {
        let one = record(1, 7, &[('b', 0), ('.', 5), ('.', 900), ('.', 990)]);
        let two = record(2, 8, &[('b', 100), ('.', 995)]);
        let found = stretches(&[one, two], &pause(0, 6, 899));
        assert_eq!(overlap(&found), Some(Duration::from_millis(90)));
    }

    #[test]
    fn two_programs_of_one_contender_are_two_and_lines_that_alternate_are_counted_in_full() {
        let mut one = record(1, 7, &[('b', 0), ('.', 5), ('.', 10), ('.', 90)]);
        one.extend(record(3, 8, &[('b', 40), ('.', 60), ('.', 100)]));
        one.sort_by_key(|record| record.at);
        let records = [one, Vec::new()];
        assert_eq!(
            overlap(&stretches(&records, &[])),
            Some(Duration::from_millis(50))
        );
        assert_eq!(at_resource(&records).late, 1);
    }

    #[test]
    fn a_late_write_is_an_overlap_however_late_the_other_one_writes_again() {
        let one = record(1, 7, &[('b', 0), ('.', 110), ('.', 115)]);
        let two = record(2, 8, &[('b', 100), ('.', 300)]);
        let records = [one, two];
        assert_eq!(at_resource(&records).late, 2);
        assert_eq!(
            overlap(&stretches(&records, &[])),
            Some(Duration::from_millis(15))
        );
    }

    #[test]
    fn two_at_once_are_counted_and_a_single_line_is_zero_but_not_never() {
        let one = record(1, 7, &[('b', 0), ('.', 40), ('.', 80), ('.', 120)]);
        let two = record(2, 8, &[('b', 100), ('.', 140), ('.', 180)]);
        assert_eq!(
            overlap(&stretches(&[one.clone(), two], &[])),
            Some(Duration::from_millis(20))
        );
        let touch = record(3, 9, &[('b', 60)]);
        assert_eq!(overlap(&stretches(&[one, touch], &[])), Some(Duration::ZERO));
    }

    #[test]
    fn nobody_who_runs_again_is_no_gap_but_an_end() {
        let one = record(1, 7, &[('b', 0), ('.', 5)]);
        let found = stretches(&[one], &[]);
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
