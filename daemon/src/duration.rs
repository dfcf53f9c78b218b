//! Durations in the notation for people: `500ms`, `15s`, `2m`, `1h`, `0`.

use std::time::Duration;

/// Reads a whole number and its unit: `ms`, `s`, `m` or `h`. Zero needs no unit.
///
/// # Errors
/// One sentence with the right form.
pub fn parse(text: &str) -> Result<Duration, String> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    let unit_at = text
        .bytes()
        .position(|b| !b.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    if number.is_empty() {
        return Err("a duration is a whole number and its unit, such as 15s or 500ms".to_owned());
    }
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" => {
            return Err(format!(
                "a duration needs a unit: {number}ms, {number}s, {number}m or {number}h"
            ));
        }
        _ if unit.starts_with('.') => {
            return Err("a duration is a whole number; write 1500ms instead of 1.5s".to_owned());
        }
        _ => {
            return Err(format!(
                "`{unit}` is not a unit of time; the units are ms, s, m and h, one per duration"
            ));
        }
    };
    number
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(millis_per_unit))
        .map(Duration::from_millis)
        .ok_or_else(|| "this duration is longer than can be counted".to_owned())
}

/// Writes a duration in the notation of [`parse`], in the largest unit that gives a whole number. Rounds down to whole
/// milliseconds.
pub fn format(duration: Duration) -> String {
    let millis = duration.as_millis();
    match millis {
        0 => "0s".to_owned(),
        _ if millis.is_multiple_of(3_600_000) => format!("{}h", millis / 3_600_000),
        _ if millis.is_multiple_of(60_000) => format!("{}m", millis / 60_000),
        _ if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_in_all_units() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("500ms", 500),
            ("15s", 15_000),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("007s", 7_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        for millis in [
            0, 1, 999, 1_000, 1_875, 59_000, 60_000, 90_000, 3_600_000, 5_400_000,
        ] {
            let duration = Duration::from_millis(millis);
            assert_eq!(parse(&format(duration)), Ok(duration), "{millis}");
        }
    }

    #[test]
    fn bad_durations_are_refused_with_what_would_be_right() {
        for (text, message) in [
            (
                "",
                "a duration is a whole number and its unit, such as 15s or 500ms",
            ),
            (
                "s",
                "a duration is a whole number and its unit, such as 15s or 500ms",
            ),
            (
                "+5s",
                "a duration is a whole number and its unit, such as 15s or 500ms",
            ),
            (
                " 5s",
                "a duration is a whole number and its unit, such as 15s or 500ms",
            ),
            ("15", "a duration needs a unit: 15ms, 15s, 15m or 15h"),
            ("-5s", "a duration cannot be negative"),
            (
                "1.5s",
                "a duration is a whole number; write 1500ms instead of 1.5s",
            ),
            (
                "5 s",
                "` s` is not a unit of time; the units are ms, s, m and h, one per duration",
            ),
            (
                "5S",
                "`S` is not a unit of time; the units are ms, s, m and h, one per duration",
            ),
            (
                "1m30s",
                "`m30s` is not a unit of time; the units are ms, s, m and h, one per duration",
            ),
            (
                "2d",
                "`d` is not a unit of time; the units are ms, s, m and h, one per duration",
            ),
            (
                "99999999999999999999s",
                "this duration is longer than can be counted",
            ),
            (
                "18446744073709551615h",
                "this duration is longer than can be counted",
            ),
        ] {
            assert_eq!(parse(text), Err(message.to_owned()), "{text}");
        }
    }
}
