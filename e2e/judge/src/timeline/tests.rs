use lockkeeper_palette::Theme;

use super::terminal::Screen;
use super::*;
use crate::checker::{Rule, check};
use crate::record::Records;

const MILLISECOND: u64 = 1_000_000;

fn at(milliseconds: u64) -> BootInstant {
    BootInstant::from_nanos(milliseconds * MILLISECOND)
}

fn records(lines: &[(&str, i64, u64, u32, &str)]) -> Vec<Record> {
    let text: String = lines
        .iter()
        .map(|(kind, token, ms, pid, name)| {
            format!("{kind} {token} {} {pid} {name}", ms * MILLISECOND)
                .trim_end()
                .to_owned()
                + "\n"
        })
        .collect();
    Records::parse(&text).unwrap().records
}

fn two_holders() -> Timeline {
    let mut timeline = Timeline::new(at(0), ["alice", "bob"]);
    let lines = [
        ("begin", 41, 100, 7, "alice"),
        ("beat", 41, 3000, 7, ""),
        ("begin", 52, 4000, 8, "bob"),
        ("beat", 52, 6000, 8, ""),
    ];
    records(&lines).iter().for_each(|record| timeline.record(record));
    let label = "server 2 cut off <from the leader>".to_owned();
    timeline.mark(Mark {
        kind: MarkKind::Fault,
        label,
        from: at(2500),
        to: None,
    });
    timeline
}

#[test]
fn the_terminal_shows_who_holds_with_which_token_and_what_is_broken() {
    let screen = Screen {
        width: 72,
        window: Duration::from_secs(6),
        colour: false,
    };
    let frame = screen.frame(&two_holders(), at(6010));
    let lines: Vec<&str> = frame.lines().collect();
    assert!(
        lines[0].starts_with("alice  ██") && lines[0].contains("··"),
        "{frame}"
    );
    assert!(
        lines[1].starts_with("bob    ··") && lines[1].ends_with("█                   52"),
        "{frame}"
    );
    assert!(lines[2].contains('▒'), "{frame}");
    assert_eq!(
        lines[3],
        "6.0 s | held by bob | 1 handoffs, longest without a holder 1.0 s"
    );
    assert_eq!(lines[4], "server 2 cut off <from the leader>");
}

#[test]
fn colours_end_where_their_line_ends() {
    let screen = Screen {
        width: 60,
        window: Duration::from_secs(6),
        colour: true,
    };
    let frame = screen.frame(&two_holders(), at(6010));
    for line in frame.lines().filter(|line| line.contains('\x1b')) {
        let last = line.rfind('\x1b').map(|at| &line[at..]);
        assert!(last.is_some_and(|end| end.starts_with("\x1b[0m")), "{line:?}");
    }
    assert!(frame.contains("\x1b[0;32m█"), "{frame:?}");
}

#[test]
fn a_worker_that_has_fallen_silent_is_not_shown_as_holder() {
    let screen = Screen {
        width: 60,
        window: Duration::from_secs(6),
        colour: false,
    };
    let mut timeline = two_holders();
    timeline.unmark("server 2 cut off <from the leader>", at(6500));
    let frame = screen.frame(&timeline, at(7000));
    assert!(frame.contains("nobody holds, for 1.0 s"), "{frame}");
    assert!(frame.contains("nothing is broken"), "{frame}");
    assert!(!frame.contains("52"), "{frame}");
}

#[test]
fn no_line_is_wider_than_the_screen() {
    let screen = Screen {
        width: 72,
        window: Duration::from_secs(6),
        colour: false,
    };
    let mut timeline = two_holders();
    timeline.mark(Mark {
        kind: MarkKind::Fault,
        label: "x".repeat(100),
        from: at(2500),
        to: None,
    });
    let frame = screen.frame(&timeline, at(6010));
    assert!(frame.lines().all(|line| line.chars().count() <= 72), "{frame}");
}

#[test]
fn the_picture_has_every_holder_every_token_and_every_fault() {
    let picture = svg::render(&two_holders(), "Two holders & one fault", Theme::Light);
    for part in [
        ">alice</text>",
        ">41</text>",
        ">52</text>",
        "Two holders &amp; one fault",
        "&lt;from the leader&gt;",
        ">1.0 s</text>",
    ] {
        assert!(picture.contains(part), "{part} is missing in\n{picture}");
    }
    assert_eq!(picture.matches("class=\"hold").count(), 2);
}

#[test]
fn an_overlap_is_drawn_as_a_violation() {
    let lines = [
        ("begin", 1, 100, 7, "alice"),
        ("end", 1, 300, 7, ""),
        ("begin", 2, 250, 8, "bob"),
        ("end", 2, 400, 8, ""),
    ];
    let timeline = Timeline::of(&check(&records(&lines), Rule::Exclusive));
    assert_eq!(timeline.marks()[0].to, Some(at(300)));
    assert!(svg::render(&timeline, "t", Theme::Dark).contains("class=\"violation\""));
}

#[test]
fn a_part_of_a_timeline_ends_where_it_was_cut() {
    let part = two_holders().between(at(2000), at(2600));
    assert_eq!(part.start(), at(2000));
    let names: Vec<_> = part.rows().iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["alice"], "bob ran later");
    let bar = &part.rows()[0].bars[0];
    assert_eq!((bar.token, bar.from, bar.to), (41, at(2000), at(2600)));
    assert_eq!(part.marks().len(), 1);
    assert!(two_holders().between(at(0), at(2000)).marks().is_empty());
    let says_nothing = two_holders().between(at(2600), at(2700));
    assert!(
        says_nothing.marks().is_empty(),
        "the server is cut off all the time"
    );
}
