use std::num::NonZeroU32;

use super::*;

const ROOT: FencingToken = FencingToken(100);

/// `l7`, `r7` and `w7` are contenders with the number 7.
fn name(word: &str) -> String {
    let (kind, number) = word.split_at(1);
    let marker = match kind {
        "r" => "-__READ__",
        "w" => "-__WRIT__",
        _ => "-lock-",
    };
    let number: i32 = number.parse().unwrap();
    format!("_c_00000000-0000-0000-0000-000000000000{marker}{number:010}")
}

/// Below the lock root in use: the tokens are in the order of the numbers.
fn holder(word: &str) -> Holder {
    let number: i64 = word[1..].parse().unwrap();
    Holder {
        contender: name(word),
        token: FencingToken(1_000 + number),
    }
}

fn release(word: &str) -> CleanRelease {
    let Holder { contender, token } = holder(word);
    CleanRelease { contender, token }
}

fn semaphore() -> Mode {
    Mode::Semaphore(NonZeroU32::new(3).unwrap())
}

/// The knowledge of a contender, and what it writes.
struct Look {
    mode: Mode,
    ahead: Option<Ahead>,
    suspects: BTreeSet<String>,
}

impl Look {
    fn new(mode: Mode) -> Self {
        Self {
            mode,
            ahead: None,
            suspects: BTreeSet::new(),
        }
    }

    fn beside(mut self, own: &str, others: &str) -> Self {
        let mut children: Vec<_> = others.split_whitespace().map(name).collect();
        children.push(name(own));
        self.ahead = Ahead::from_children(&children, &name(own), self.mode);
        self
    }

    fn suspecting(mut self, words: &str) -> Self {
        self.suspects = words.split_whitespace().map(name).collect();
        self
    }

    fn claims(&self, control: Control, own: &str) -> (Control, Debts) {
        let claimant = Claimant {
            own: holder(own),
            mode: self.mode,
            root: ROOT,
            ahead: self.ahead.as_ref(),
            suspects: &self.suspects,
        };
        let debts = control.debts(&claimant);
        let control = control.with_claim(&claimant, &debts);
        // As a contender reads it back.
        (Control::parse(&control.to_data()), debts)
    }
}

fn names(holders: &[Holder]) -> Vec<&str> {
    holders.iter().map(|holder| holder.contender.as_str()).collect()
}

fn named(control: &Control) -> Vec<&str> {
    names(control.holders.as_deref().unwrap())
}

#[test]
fn a_holder_that_released_leaves_nothing_to_wait_for_and_one_that_did_not_leaves_itself() {
    let exclusive = Look::new(Mode::Exclusive);
    let (held, debts) = exclusive.claims(Control::default(), "l0");
    assert!(debts.is_empty());
    assert!(held.names(&holder("l0")));

    let released = held.clone().without_holder(&name("l0"), Mode::Exclusive, &debts);
    assert_eq!(released.holders.as_deref(), Some(&[][..]));
    assert!(exclusive.claims(released, "l9").1.is_empty());

    let (_, debts) = exclusive.claims(held, "l9");
    assert_eq!(names(&debts.holders), [name("l0")]);
}

#[test]
fn who_leaves_without_having_waited_leaves_the_wait_to_the_next_one() {
    let exclusive = Look::new(Mode::Exclusive);
    let (held, _) = exclusive.claims(Control::default(), "l0");
    let (held, debts) = exclusive.claims(held, "l1");
    let left = held
        .clone()
        .without_holder(&name("l1"), Mode::Exclusive, &debts)
        .with_release(release("l1"));
    let (_, next) = exclusive.claims(Control::parse(&left), "l2");
    assert_eq!(names(&next.holders), [name("l0")]);

    let waited = held.without(&debts);
    assert!(waited.names(&holder("l1")));
    let left = waited.without_holder(&name("l1"), Mode::Exclusive, &Debts::default());
    assert!(exclusive.claims(left, "l2").1.is_empty());
}

#[test]
fn the_wait_is_left_to_the_next_one_also_when_somebody_has_emptied_the_control_node() {
    let exclusive = Look::new(Mode::Exclusive);
    let (held, _) = exclusive.claims(Control::default(), "l0");
    let (_, debts) = exclusive.claims(held, "l1");
    let left = Control::default().without_holder(&name("l1"), Mode::Exclusive, &debts);
    assert_eq!(names(&exclusive.claims(left, "l2").1.holders), [name("l0")]);
    let shared = Control::default().without_holder(&name("l1"), semaphore(), &Debts::default());
    assert_eq!(shared.more_holders, 1, "others may have been named there");
}

#[test]
fn a_contender_that_wrote_nothing_is_suspected_unless_it_or_a_later_one_released_below_this_root() {
    let suspecting = Look::new(Mode::Exclusive).suspecting("l3");
    let known = Control {
        holders: Some(Vec::new()),
        ..Control::default()
    };
    let (written, debts) = suspecting.claims(known.clone(), "l5");
    assert_eq!(names(&debts.holders), [name("l3")]);
    // The next contender learns of it.
    let (_, next) = Look::new(Mode::Exclusive).claims(written, "l6");
    assert_eq!(names(&next.holders), [name("l5")], "waiting for one covers all");

    for settles in ["l3", "l4"] {
        let mut released = known.clone();
        released.last_release = vec![release(settles)];
        assert!(
            suspecting.claims(released.clone(), "l5").1.is_empty(),
            "{settles}"
        );
        released.last_release[0].token = ROOT;
        let is_by_name = settles == "l3";
        assert_eq!(
            suspecting.claims(released, "l5").1.is_empty(),
            is_by_name,
            "{settles}"
        );
    }
}

#[test]
fn where_nobody_has_written_holders_down_each_number_before_ours_has_to_be_accounted_for() {
    let exclusive = Look::new(Mode::Exclusive);
    assert!(exclusive.claims(Control::default(), "l0").1.is_empty());
    let (written, debts) = exclusive.claims(Control::default(), "l2");
    assert_eq!((debts.more, written.more_holders), (1, 1));
    assert_eq!(written.without(&debts).more_holders, 0);

    // An earlier version records only releases.
    let mut before = Control {
        last_release: vec![release("l6")],
        ..Control::default()
    };
    assert!(exclusive.claims(before.clone(), "l7").1.is_empty());
    assert!(!exclusive.claims(before.clone(), "l8").1.is_empty());
    assert!(!Look::new(semaphore()).claims(before.clone(), "l7").1.is_empty());
    before.last_release[0].token = ROOT;
    assert!(!exclusive.claims(before, "l7").1.is_empty(), "of an older root");

    let beside = Look::new(semaphore()).beside("l2", "l0 l1");
    assert!(beside.claims(Control::default(), "l2").1.is_empty());
}

#[test]
fn holders_of_a_semaphore_that_are_there_are_no_reason_to_wait_and_one_that_went_is() {
    let (control, _) = Look::new(semaphore()).claims(Control::default(), "l0");
    let (control, _) = Look::new(semaphore()).beside("l1", "l0").claims(control, "l1");
    let beside = Look::new(semaphore()).beside("l2", "l0 l1");
    assert!(beside.claims(control.clone(), "l2").1.is_empty());
    let (control, debts) = Look::new(semaphore()).beside("l2", "l1").claims(control, "l2");
    assert_eq!(names(&debts.holders), [name("l0")]);
    assert_eq!(named(&control), [name("l2"), name("l0"), name("l1")]);
    // A holder that came later has not made room for us.
    let late = Look::new(semaphore()).claims(
        Control {
            holders: Some(vec![holder("l9")]),
            ..control
        },
        "l3",
    );
    assert!(late.1.is_empty());
}

#[test]
fn readers_wait_for_writers_and_writers_for_both() {
    let (control, _) = Look::new(Mode::Read).claims(Control::default(), "r0");
    let (control, debts) = Look::new(Mode::Read).claims(control, "r1");
    assert!(debts.is_empty());
    let (control, _) = Look::new(Mode::Read).claims(control, "r2");
    assert_eq!(
        named(&control),
        [name("r2"), name("r1")],
        "the newest that went is enough"
    );
    let (control, debts) = Look::new(Mode::Write).claims(control, "w3");
    assert_eq!(names(&debts.holders), [name("r2")]);
    let (_, debts) = Look::new(Mode::Read).claims(control, "r4");
    assert_eq!(names(&debts.holders), [name("w3")]);
}

#[test]
fn a_reader_that_died_before_it_had_waited_does_not_hide_the_writer_before_it() {
    let (control, _) = Look::new(Mode::Write).claims(Control::default(), "w0");
    let (control, _) = Look::new(Mode::Read).claims(control, "r1");
    let (control, debts) = Look::new(Mode::Write).claims(control, "w2");
    assert_eq!(names(&debts.holders), [name("w0"), name("r1")]);
    let left = control.without_holder(&name("w2"), Mode::Write, &debts);
    let (_, debts) = Look::new(Mode::Read).claims(left, "r3");
    assert_eq!(names(&debts.holders), [name("w0")]);
}

#[test]
fn the_control_node_stays_small_and_who_is_left_out_is_counted_until_somebody_has_waited() {
    let mut control = Control::default();
    for number in 0..200 {
        let own = format!("l{number}");
        let others: Vec<_> = (0..number).map(|number| format!("l{number}")).collect();
        let beside = Look::new(semaphore()).beside(&own, &others.join(" "));
        control = beside.claims(control, &own).0;
        assert!(control.names(&holder(&own)));
    }
    assert_eq!(named(&control).len(), NAMED_HOLDERS);
    assert!(control.to_data().len() < 8 * 1024);
    assert!(
        control.names(&holder("l3")),
        "counted with those that are left out"
    );
    let (next, debts) = Look::new(semaphore()).claims(control.clone(), "l201");
    assert!(!debts.is_empty());
    assert_ne!(
        next.clone().without(&debts).more_holders,
        0,
        "it left out one more"
    );
    assert_eq!(control.without(&debts).more_holders, 0);

    let (mut control, exclusive) = (Control::default(), Look::new(Mode::Exclusive));
    for number in 0..200 {
        control = exclusive.claims(control, &format!("l{number}")).0;
    }
    assert_eq!(named(&control), [name("l199"), name("l198")]);
}

#[test]
fn a_name_of_any_length_is_waited_for_and_only_short_ones_are_written_down() {
    let long = format!("{}-lock-0000000003", "x".repeat(LONGEST_NAME));
    for mode in [Mode::Exclusive, semaphore()] {
        let mut look = Look::new(mode);
        look.suspects.insert(long.clone());
        let known = Control {
            holders: Some(Vec::new()),
            ..Control::default()
        };
        let (control, debts) = look.claims(known, "l5");
        assert!(!debts.is_empty());
        assert_eq!((named(&control), control.more_holders), (vec![&*name("l5")], 1));
        assert_eq!(control.without(&debts).more_holders, 0);
    }
}

#[test]
fn an_earlier_version_keeps_what_it_does_not_know() {
    let (control, _) = Look::new(Mode::Exclusive).claims(Control::default(), "l4");
    let text = String::from_utf8(control.to_data()).unwrap();
    let as_before: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(as_before["holders"][0]["token"], 1_004);
    assert_eq!(as_before["moreHolders"], 1);
    assert_eq!(Control::parse(text.as_bytes()), control);
}
