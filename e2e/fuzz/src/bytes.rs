//! Inputs in place of files and connections.

use std::cell::OnceCell;
use std::io::Cursor;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SeekFrom};
use tokio::io::{Join, Sink};
use tokio::runtime::{Builder, Runtime};

thread_local! {
    static RUNTIME: OnceCell<Runtime> = const { OnceCell::new() };
}

/// Runs a future to its end. It never waits: all its input is in memory.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    RUNTIME.with(|runtime| {
        let make = || {
            Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime")
        };
        runtime.get_or_init(make).block_on(future)
    })
}

/// A connection that sends this and then ends.
pub(crate) fn connection(input: &[u8]) -> Join<Cursor<Vec<u8>>, Sink> {
    tokio::io::join(Cursor::new(input.to_vec()), tokio::io::sink())
}

pub(crate) fn file(content: &[u8]) -> OwnedFd {
    let file = rustix::fs::memfd_create("input", MemfdFlags::CLOEXEC).expect("a file in memory");
    let mut rest = content;
    while !rest.is_empty() {
        let written = rustix::io::write(&file, rest).expect("written");
        rest = &rest[written..];
    }
    rustix::fs::seek(&file, SeekFrom::Start(0)).expect("rewound");
    file
}

/// The parts of an input between empty lines, `N` of them.
pub(crate) fn parts<const N: usize>(input: &[u8]) -> [&[u8]; N] {
    let mut rest = Some(input);
    std::array::from_fn(|_| {
        let all = rest.take().unwrap_or_default();
        match all.windows(2).position(|two| two == b"\n\n") {
            Some(end) => {
                rest = Some(&all[end + 2..]);
                &all[..=end]
            }
            None => all,
        }
    })
}
