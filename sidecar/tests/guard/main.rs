//! The guard on real processes.
//!
//! This program is the tests and everything that they start: the guard itself, and an application
//! that records when it ran. A test harness of its own shares the tests out to a few processes,
//! which each start one test after the other.

mod container;
mod deadline;
mod group;
mod harness;
mod held;
mod helpers;
mod hidden;
mod impostor;
mod lifecycle;
mod listener;
mod pause;
mod pid1;
mod post_start;
mod sandbox;
mod sys;
mod tree;

use std::process::ExitCode;

/// A test: its name, which is a promise to the user, and what shows it.
pub type Test = (&'static str, fn());

/// Names a list of test functions.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        pub const TESTS: &[$crate::Test] = &[$((stringify!($name), $name)),*];
    };
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    match arguments.get(1).and_then(|role| role.to_str()) {
        Some("role:guard") => helpers::guard(&arguments[2..]),
        Some("role:hello") => listener::guard(&arguments[2..]),
        Some("role:impostor") => impostor::impostor(&arguments[2..]),
        Some("role:record") => helpers::record(&arguments[2..]),
        Some("role:headless") => helpers::headless(&arguments[2..]),
        Some("role:old-kernel") => helpers::old_kernel(&arguments[2..]),
        Some("role:pidfd") => helpers::pidfd(),
        Some("role:write") => helpers::write(&arguments[2..]),
        Some("role:witness") => harness::witness::watch(arguments[2].as_ref()),
        _ if harness::ignores_signals() => harness::main_with_plain_signals(&arguments[1..]),
        _ => harness::main(&[
            deadline::TESTS,
            tree::TESTS,
            lifecycle::TESTS,
            pause::TESTS,
            held::TESTS,
            pid1::TESTS,
            post_start::TESTS,
            container::TESTS,
            hidden::TESTS,
            listener::TESTS,
            impostor::TESTS,
            sandbox::TESTS,
        ]),
    }
}
