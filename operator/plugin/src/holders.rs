//! The holders of a lock, for a sentence.

use lockkeeper_crds::lock::{Holder, TakenFrom};

/// Holders that are named; more are counted.
const NAMED: usize = 3;

pub fn named(holders: &[Holder]) -> String {
    let names: Vec<_> = holders.iter().map(|holder| holder.pod.as_str()).collect();
    match names.get(NAMED..) {
        None | Some([]) => names.join(", "),
        Some(more) => format!("{} and {} more", names[..NAMED].join(", "), more.len()),
    }
}

/// From whom a holder took its place.
pub fn taken(from: &TakenFrom) -> String {
    format!("{}, which was silent for {}", from.pod, from.silence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn three_holders_are_named_and_more_are_counted() {
        let named_of = |count: i64| {
            let holders: Vec<Holder> = (1..=count)
                .map(|at| {
                    let holder = json!({ "pod": format!("p{at}"), "contender": "c", "fencingToken": at });
                    serde_json::from_value(holder).unwrap()
                })
                .collect();
            named(&holders)
        };
        assert_eq!(named_of(0), "");
        assert_eq!(named_of(1), "p1");
        assert_eq!(named_of(3), "p1, p2, p3");
        assert_eq!(named_of(5), "p1, p2, p3 and 2 more");
    }
}
