//! Tables for people, of text that others may have written. Pure.

use std::fmt::Write as _;
use std::time::Duration;

/// Most characters of a cell: others choose names of up to a megabyte, and each row would be padded to that.
const LONGEST_CELL: usize = 120;

/// Pads all columns but the last, with three spaces between them as kubectl does. Each row has the same number of cells;
/// long ones are cut.
pub fn columns(rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| cut(&plain(cell), LONGEST_CELL)).collect())
        .collect();
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<_> = (0..columns)
        .map(|at| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.max().unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for row in &rows {
        let Some((last, others)) = row.split_last() else {
            continue;
        };
        for (cell, width) in others.iter().zip(&widths) {
            // Writing to a string does not fail.
            let _ = write!(text, "{cell:<width$}   ");
        }
        text.push_str(last);
        text.push('\n');
    }
    text
}

/// The beginning of a text that has more than `most` characters.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// In the two largest units that kubectl would show: `41m`, `3h`, `2d`.
pub fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The same without control characters and marks that change the direction of text, which a terminal would carry out.
pub fn plain(text: &str) -> String {
    /// Marks that change the direction of what follows (Unicode Standard Annex 9).
    const TURNING: [char; 12] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
        '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || TURNING.contains(&c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_kubectl_shows_them() {
        for (seconds, shown) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (7_200, "2h"),
            (172_800, "2d"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn what_another_client_has_written_is_shown_and_not_carried_out() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = columns(&[row(["A", "B"]), row(["a\u{1b}[2J\n", "\u{202e}b"])]);
        assert_eq!(text, "A              B\na\\u{1b}[2J\\n   \\u{202e}b\n");
        assert_eq!(columns(&[]), "");
    }

    #[test]
    fn a_name_of_a_megabyte_is_cut() {
        let row = |name: &str| vec![name.to_owned(), "b".to_owned()];
        let text = columns(&[row("A"), row(&"ü".repeat(500_000))]);
        assert_eq!(text.chars().count(), 2 * (LONGEST_CELL + 1 + 3 + 1 + 1));
        assert!(text.ends_with("ü…   b\n"));
    }
}
