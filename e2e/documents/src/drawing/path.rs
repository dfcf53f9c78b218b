//! Paths of straight lines.

use super::form::Point;

/// The lines of a path: `M`, `L`, `H`, `V` and `Z`, and the same in lower case.
///
/// # Errors
/// What is not understood, such as a curve.
pub(super) fn lines(path: &str) -> Result<Vec<(Point, Point)>, String> {
    let mut lines = Vec::new();
    let (mut at, mut start) = ((0.0, 0.0), (0.0, 0.0));
    for part in parts(path) {
        let (command, numbers) = part.split_at(1);
        let numbers = numbers_of(numbers)?;
        let relative = command.chars().all(char::is_lowercase);
        let base = |at: Point| if relative { at } else { (0.0, 0.0) };
        let mut go = |to: Point, at: &mut Point| {
            lines.push((*at, to));
            *at = to;
        };
        match command.to_ascii_uppercase().as_str() {
            "H" => numbers.iter().for_each(|x| go((base(at).0 + x, at.1), &mut at)),
            "V" => numbers.iter().for_each(|y| go((at.0, base(at).1 + y), &mut at)),
            "Z" => go(start, &mut at),
            move_or_line @ ("M" | "L") => {
                let (pairs, rest) = numbers.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err(format!("{path}: a number is missing in {part}"));
                }
                for (index, [x, y]) in pairs.iter().enumerate() {
                    let to = (base(at).0 + x, base(at).1 + y);
                    if move_or_line == "M" && index == 0 {
                        (at, start) = (to, to);
                    } else {
                        go(to, &mut at);
                    }
                }
            }
            _ => return Err(format!("{path}: {command} is not understood")),
        }
    }
    Ok(lines)
}

/// Each command with its numbers.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    let starts: Vec<_> = path
        .match_indices(|letter: char| letter.is_ascii_alphabetic())
        .collect();
    let ends: Vec<_> = starts
        .iter()
        .skip(1)
        .map(|&(at, _)| at)
        .chain([path.len()])
        .collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|((from, _), to)| &path[from..to])
}

fn numbers_of(text: &str) -> Result<Vec<f64>, String> {
    let spaced = text.replace(',', " ").replace('-', " -");
    let numbers = spaced.split_whitespace();
    numbers
        .map(|number| number.parse().map_err(|_| format!("{number} is no number")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_follow_each_other() {
        let found = lines("M1 2H4v3m-1 -1 2 0").unwrap();
        assert_eq!(
            found,
            [
                ((1.0, 2.0), (4.0, 2.0)),
                ((4.0, 2.0), (4.0, 5.0)),
                ((3.0, 4.0), (5.0, 4.0))
            ]
        );
        assert!(lines("M1 2C3 4 5 6 7 8").is_err());
    }
}
