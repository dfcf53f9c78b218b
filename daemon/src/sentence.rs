//! Lists of any length, in a sentence for a person.

use std::fmt::Display;

/// How many are named where a sentence has other things to say.
const FEW: usize = 3;

/// The first three of these, separated by commas; those that are more are counted.
pub fn few<T: Display>(names: impl IntoIterator<Item = T>) -> String {
    first(names, FEW)
}

/// The first `most` of these, separated by commas; those that are more are counted.
pub fn first<T: Display>(names: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut names = names.into_iter();
    let shown: Vec<_> = names.by_ref().take(most).map(|name| name.to_string()).collect();
    match names.count() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_are_named_and_more_are_counted() {
        let named = |count: u32| few((1..=count).map(|at| format!("p{at}")));
        assert_eq!(named(0), "");
        assert_eq!(named(1), "p1");
        assert_eq!(named(3), "p1, p2, p3");
        assert_eq!(named(5), "p1, p2, p3 and 2 more");
    }
}
