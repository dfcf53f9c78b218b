//! Modules of a crate do not need each other in circles.
//!
//! The rule: modules that have the same parent do not need each other in a circle. A module counts with all
//! that is below it, so that a folder can be read, moved and tested by itself. A module and what is below it
//! may know each other: they are one thing in several files. A name that a module only re-exports (`pub use`)
//! belongs to the module that it comes from. Code that is compiled only for tests may know everything.

use lockkeeper_documents::{circles, crates};

#[test]
fn no_modules_of_a_crate_need_each_other_in_a_circle() {
    let crates = crates();
    let circles: Vec<_> = crates.iter().flat_map(circles).collect();
    assert!(crates.len() > 20 && circles.is_empty(), "{}", circles.join("\n"));
}
