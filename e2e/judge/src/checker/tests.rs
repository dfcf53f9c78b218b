use super::*;
use crate::record::Records;

fn report(text: &str, rule: Rule) -> Report {
    check(&Records::parse(text).unwrap().records, rule)
}

fn overlapping(report: &Report) -> Vec<(Vec<i64>, u64)> {
    let tokens = |holds: &[usize]| holds.iter().map(|&hold| report.holds[hold].token).collect();
    report
        .violations
        .iter()
        .filter_map(|violation| match violation {
            Violation::Overlap { holds, lasted, .. } => Some((tokens(holds), lasted.as_nanos() as u64)),
            Violation::TokenOrder { .. } => None,
        })
        .collect()
}

#[test]
fn holds_one_after_the_other_are_clean_and_their_gaps_are_told() {
    let report = report(
        "begin 1 100 7 a\nbeat 1 150 7\nend 1 200 7\n\
         begin 2 230 8 b\nbeat 2 300 8\n\
         begin 3 305 7 a\nend 3 400 7\n",
        Rule::Exclusive,
    );
    assert!(report.is_clean(), "{report}");
    assert_eq!(
        report.gaps,
        [(1, Duration::from_nanos(30)), (2, Duration::from_nanos(5))]
    );
    assert_eq!(report.least_gap(), Some(Duration::from_nanos(5)));
    assert_eq!(
        report.holds.iter().map(|hold| hold.ended).collect::<Vec<_>>(),
        [true, false, true]
    );
}

#[test]
fn two_holders_that_run_at_one_moment_are_found_and_named() {
    let report = report(
        "begin 1 100 7 a\nbeat 1 200 7\nbegin 2 190 8 b\nbeat 2 300 8\n",
        Rule::Exclusive,
    );
    assert_eq!(overlapping(&report), [(vec![1, 2], 10)]);
    let text = report.to_string();
    assert!(
        text.contains("VIOLATION at 0.000 s: a (token 1, pid 7) and b (token 2, pid 8) ran at the same time"),
        "{text}"
    );
}

#[test]
fn a_hold_within_another_lasts_as_long_as_the_inner_one() {
    let report = report(
        "begin 1 100 7 a\nbeat 1 900 7\nbegin 2 300 8 b\nend 2 350 8\n",
        Rule::Exclusive,
    );
    assert_eq!(overlapping(&report), [(vec![1, 2], 50)]);
}

#[test]
fn a_long_hold_is_found_to_overlap_each_of_the_short_ones_within_it() {
    let report = report(
        "begin 1 100 7 a\nbeat 1 900 7\nbegin 2 300 8 b\nend 2 350 8\nbegin 3 400 9 c\nend 3 410 9\n",
        Rule::Exclusive,
    );
    assert_eq!(overlapping(&report), [(vec![1, 2], 50), (vec![1, 3], 10)]);
    assert_eq!(report.gaps, []);
}

#[test]
fn an_end_and_a_begin_at_the_same_nanosecond_are_an_overlap() {
    let report = report(
        "begin 1 100 7 a\nend 1 200 7\nbegin 2 200 8 b\nend 2 300 8\n",
        Rule::Exclusive,
    );
    assert_eq!(overlapping(&report), [(vec![1, 2], 0)]);
}

#[test]
fn records_in_any_order_give_the_same_report() {
    let lines = [
        "begin 1 100 7 a",
        "beat 1 150 7",
        "end 1 200 7",
        "begin 2 180 8 b",
        "end 2 300 8",
    ];
    let records: Vec<Record> = lines.iter().map(|line| line.parse().unwrap()).collect();
    let expected = check(&records, Rule::Exclusive);
    assert_eq!(overlapping(&expected), [(vec![1, 2], 20)]);
    let mut random = fastrand::Rng::with_seed(1);
    for _ in 0..20 {
        let mut shuffled = records.clone();
        random.shuffle(&mut shuffled);
        assert_eq!(check(&shuffled, Rule::Exclusive), expected);
    }
}

#[test]
fn a_descendant_that_survives_its_parent_prolongs_the_hold() {
    let report = report(
        "begin 1 100 7 a\nbegin 1 110 70 a-orphan\nend 1 200 7\nbeat 1 260 70\nbegin 2 250 8 b\nend 2 300 8\n",
        Rule::Exclusive,
    );
    assert_eq!(overlapping(&report), [(vec![1, 2], 10)]);
    assert_eq!(
        (report.holds[0].name.as_str(), &report.holds[0].pids),
        ("a", &vec![7, 70])
    );
    assert!(!report.holds[0].ended);
}

#[test]
fn a_program_that_is_started_again_under_the_same_grant_is_one_hold() {
    let report = report(
        "begin 1 100 7 a\nbeat 1 200 7\nbegin 1 250 9 a\nend 1 300 9\n",
        Rule::Exclusive,
    );
    assert!(report.is_clean(), "{report}");
    assert_eq!(report.holds.len(), 1);
}

#[test]
fn tokens_must_grow_from_holder_to_holder() {
    let report = report(
        "begin 2 100 7 a\nend 2 200 7\nbegin 1 300 8 b\nend 1 400 8\n",
        Rule::Exclusive,
    );
    assert_eq!(
        report.violations,
        [Violation::TokenOrder { earlier: 0, later: 1 }]
    );
    assert!(
        report
            .to_string()
            .contains("b (token 1, pid 8) began after a (token 2, pid 7)"),
        "{report}"
    );
}

#[test]
fn a_semaphore_allows_so_many_and_not_one_more() {
    let two = "begin 1 100 7 a\nbeat 1 500 7\nbegin 2 150 8 b\nbeat 2 300 8\n";
    assert!(report(two, Rule::AtMost(2)).is_clean());
    let three = format!("{two}begin 3 250 9 c\nend 3 400 9\n");
    assert_eq!(
        overlapping(&report(&three, Rule::AtMost(2))),
        [(vec![1, 2, 3], 50)]
    );
    let in_turn = format!("{two}begin 3 301 9 c\nend 3 400 9\n");
    assert!(report(&in_turn, Rule::AtMost(2)).is_clean());
}

#[test]
fn readers_share_and_a_writer_is_alone() {
    let readers = "begin 1 100 7 a read\nbeat 1 300 7\nbegin 2 150 8 b read\nbeat 2 280 8\n";
    assert!(report(readers, Rule::ReadWrite).is_clean());
    let writer = format!("{readers}begin 3 290 9 c\nend 3 400 9\n");
    assert_eq!(overlapping(&report(&writer, Rule::ReadWrite)), [(vec![1, 3], 10)]);
    // Readers may start in any order among themselves, but not before a writer that came first.
    let swapped = "begin 2 100 7 a read\nend 2 200 7\nbegin 1 150 8 b read\nend 1 200 8\n";
    assert!(report(swapped, Rule::ReadWrite).is_clean());
    let overtaken = "begin 2 100 7 a read\nend 2 200 7\nbegin 1 250 8 b\nend 1 300 8\n";
    assert_eq!(report(overtaken, Rule::ReadWrite).violations.len(), 1);
}

#[test]
fn the_spare_time_of_each_hold_is_told_also_when_there_was_none() {
    let report = report(
        "begin 1 100 7 a\nend 1 200 7\nbegin 2 300 8 b\nend 2 400 8\n",
        Rule::Exclusive,
    );
    let life = |token, deleted: Option<u64>| NodeLife {
        name: format!("n{token}"),
        token,
        created: None,
        deleted: deleted.map(BootInstant::from_nanos),
    };
    let spares = report.spares(&[life(1, Some(290)), life(2, Some(390)), life(3, None)]);
    let expected = [(1, Some(90), None), (2, None, Some(10))];
    let nanos = |d: Option<Duration>| d.map(|d| d.as_nanos() as u64);
    assert_eq!(
        spares
            .iter()
            .map(|s| (s.token, nanos(s.spare), nanos(s.late)))
            .collect::<Vec<_>>(),
        expected
    );
    assert!(table(&report, &spares).contains("-0 us"));
}

#[test]
fn no_records_prove_nothing_and_the_report_says_so() {
    let report = report("", Rule::Exclusive);
    assert!(report.to_string().contains("nothing is proven"));
}

#[test]
fn a_paused_program_does_not_hold_while_it_is_silent() {
    let text = "begin 1 100 7 a\nbeat 1 200 7\nbegin 2 300 8 b\nend 2 400 8\nbeat 1 600 7\nend 1 700 7\n";
    let records = Records::parse(text).unwrap().records;
    assert!(!check(&records, Rule::Exclusive).is_clean());
    let report = check_with_pauses(&records, Rule::Exclusive, Duration::from_nanos(150));
    assert!(report.is_clean(), "{report}");
    assert_eq!(
        report
            .holds
            .iter()
            .map(|hold| (hold.token, hold.resumed))
            .collect::<Vec<_>>(),
        [(1, false), (2, false), (1, true)]
    );
}
