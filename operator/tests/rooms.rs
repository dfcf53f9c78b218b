//! The rooms of the operator stand on each other, and no room imports one above it or beside it.

use std::fs;

#[path = "support/sources.rs"]
mod sources;

use sources::{code, files, src};

/// The folders of `src`, from the ground up. Rooms of one floor do not know each other. All other files of `src` are
/// either on the ground ([`GROUND`]) or above all rooms.
const FLOORS: [&[&str]; 5] = [
    &["kubernetes"],
    &["identity"],
    &["zookeeper"],
    &["node_fencing"],
    &["admission", "controller", "uninstall"],
];

/// Files that all rooms share and that import no room.
const GROUND: [&str; 6] = [
    "addresses",
    "leadership",
    "lock_key",
    "metrics",
    "problem",
    "work_queue",
];

/// The first words of all paths that begin with `crate::`, but for those in comments.
fn imports(text: &str) -> impl Iterator<Item = &str> {
    let paths = code(text).flat_map(|line| line.split("crate::").skip(1));
    paths.map(|path| {
        path.split(|c: char| c != '_' && !c.is_alphanumeric())
            .next()
            .unwrap()
    })
}

#[test]
fn each_room_imports_only_what_is_below_it() {
    let src = src();
    let mut below = GROUND.to_vec();
    let mut seen = 0;
    let check = |room: &str, allowed: &[&str]| {
        let mut of_room = vec![src.join(room).with_extension("rs")];
        if src.join(room).is_dir() {
            of_room.extend(files(&src.join(room)));
        }
        let mut count = 0;
        for file in of_room {
            let text = fs::read_to_string(&file).unwrap();
            for import in imports(&text) {
                count += 1;
                let is_below = import == room || allowed.contains(&import);
                assert!(
                    is_below,
                    "{} imports {import}, which is not below it",
                    file.display()
                );
            }
        }
        count
    };
    for room in GROUND {
        check(room, &GROUND);
    }
    for floor in FLOORS {
        for room in floor {
            seen += check(room, &below);
        }
        below.extend(floor);
    }
    assert!(seen > 100, "the rooms import from each other: {seen}");
    let folders = fs::read_dir(&src).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| path.is_dir() && !files(path).is_empty());
    for folder in folders {
        let name = folder.file_name().unwrap().to_str().unwrap();
        assert!(FLOORS.concat().contains(&name), "{name} is on no floor");
    }
}
