//! What a review needs of memory, before it is read.

use k8s_openapi::api::core::v1::{
    Container, ContainerStatus, EphemeralContainer, PodAffinityTerm, PodCondition, TopologySpreadConstraint,
    Volume, VolumeProjection, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

/// A `{` with something in it: a leaf of a `BTreeMap<String, Value>` has room for eleven entries of 56 bytes.
const OBJECT: usize = 640;
/// An element of an array, or an entry of an object beyond its leaf: 32 bytes, in a vector that grows to
/// twice its size and is copied then.
const ELEMENT: usize = 96;
/// The allocation of a string, beside its length.
const STRING: usize = 48;
/// The object as it came, with the types of its fields, and changed.
const COPIES: usize = 3;

/// Lists whose elements are large structs once they have their types, however little is written of them: a `{}` in
/// `volumes` becomes a struct with fields for all kinds of volumes.
const LARGE: [&[u8]; 7] = [
    b"volumes",
    b"containers",
    b"initContainers",
    b"ephemeralContainers",
    b"containerStatuses",
    b"initContainerStatuses",
    b"ephemeralContainerStatuses",
];
/// An object in one of them, in bytes.
const LARGE_TYPE: usize = GROWTH
    * max(
        max(size_of::<Volume>(), size_of::<Container>()),
        max(size_of::<EphemeralContainer>(), size_of::<ContainerStatus>()),
    );
/// An object in any other list of a pod, in bytes: the largest types of these.
const SMALL_TYPE: usize = GROWTH
    * max(
        max(
            size_of::<VolumeProjection>(),
            size_of::<WeightedPodAffinityTerm>(),
        ),
        max(
            max(
                size_of::<PodAffinityTerm>(),
                size_of::<TopologySpreadConstraint>(),
            ),
            max(size_of::<PodCondition>(), size_of::<ManagedFieldsEntry>()),
        ),
    );
/// A list grows to twice its size, and is copied then.
const GROWTH: usize = 3;
/// Objects and lists within each other: `serde_json` reads no more.
const DEPTH: usize = 128;

const fn max(one: usize, other: usize) -> usize {
    if one > other { one } else { other }
}

/// How many bytes the review in this JSON needs at most while it is decided. Says nothing about whether it
/// is JSON.
pub(crate) fn of(json: &[u8]) -> usize {
    let (mut objects, mut elements, mut strings, mut types) = (0, 0, 0, 0_usize);
    // What an object weighs in each of the lists and objects that are open; nothing in an object.
    let (mut open, mut depth) = ([0_usize; DEPTH], 0_usize);
    // The last string, which may be the key of what comes next.
    let mut last: &[u8] = b"";
    let mut at = 0;
    while let Some(&byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => {
                strings += 1;
                let rest = &json[at..];
                let length = length(rest);
                last = &rest[..length];
                at += length + 1;
            }
            b'{' => {
                elements += 1;
                types += depth
                    .checked_sub(1)
                    .and_then(|above| open.get(above))
                    .unwrap_or(&0);
                if let Some(of) = open.get_mut(depth) {
                    *of = 0;
                }
                depth += 1;
                // An empty map has no leaf. There are many in `managedFields`.
                let next = json[at..].iter().find(|byte| !byte.is_ascii_whitespace());
                objects += usize::from(next != Some(&b'}'));
            }
            b'[' => {
                elements += 1;
                if let Some(of) = open.get_mut(depth) {
                    // What is written with `\` may be any key.
                    let is_large = LARGE.contains(&last) || last.contains(&b'\\');
                    *of = if is_large { LARGE_TYPE } else { SMALL_TYPE };
                }
                depth += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => elements += 1,
            _ => {}
        }
    }
    COPIES * (OBJECT * objects + ELEMENT * elements + STRING * strings + json.len()) + types
}

/// The length of a string up to its quotation mark, or of all that is there.
fn length(rest: &[u8]) -> usize {
    let mut at = 0;
    while let Some(&byte) = rest.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_a_string_weighs_no_more_than_its_length() {
        let plain = of(br#"{"a":"xxxxxxxx"}"#);
        for same in [r#"{"a":"{,[,,,,{"}"#, r#"{"a":"\"{[,,{\""}"#] {
            assert_eq!(of(same.as_bytes()), plain + COPIES * (same.len() - 16), "{same}");
        }
    }

    #[test]
    fn an_empty_volume_weighs_as_much_as_all_that_it_is_not() {
        let list = |key: &str| format!(r#"{{"spec":{{"{key}":[{}{{}}]}}}}"#, "{},".repeat(999));
        for key in ["volumes", "containers", r"vol\u0075mes", "containerStatuses"] {
            let weight = of(list(key).as_bytes());
            assert!(
                weight > 3000 * size_of::<Volume>().max(size_of::<Container>()),
                "{key}: {weight}"
            );
        }
        let others = of(list("tolerations").as_bytes());
        assert!(others > 3000 * size_of::<VolumeProjection>() && others < of(list("volumes").as_bytes()) / 2);
        // Fields of an object are in the struct that it is in.
        let nested = format!(r#"{{"volumes":[{}]}}"#, r#"{"a":{"b":{}}}"#);
        let flat = format!(r#"{{"volumes":[{}]}}"#, r#"{"a":0}"#);
        assert!(of(nested.as_bytes()) - of(flat.as_bytes()) < LARGE_TYPE);
    }

    #[test]
    fn small_things_weigh_more_than_their_length() {
        let million = format!("[{}1]", "1,".repeat(1_000_000));
        assert!(of(million.as_bytes()) > COPIES * 96_000_000);
        let objects = format!("[{}1]", "{\"a\":1},".repeat(1000));
        assert!(of(objects.as_bytes()) > COPIES * 700_000);
        assert!(of(b"[{ },{\n}]") < COPIES * 640 + 2 * SMALL_TYPE);
        // Cut off in the middle: the parser says so.
        for broken in ["", "\"", "\"\\", "{", "[{", "]]", "\"a\\\"", &"[{".repeat(1000)] {
            of(broken.as_bytes());
        }
    }
}
