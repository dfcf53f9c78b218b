//! The program that libFuzzer runs: one target, named by `LOCKKEEPER_FUZZ_TARGET`. The command
//! `lockkeeper-fuzz` builds it, with coverage counted, and starts it.

#![no_main]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libfuzzer_sys::fuzz_target;
use lockkeeper_fuzz::{Target, targets};

static TARGET: OnceLock<Target> = OnceLock::new();
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn target() -> Target {
    let name = std::env::var("LOCKKEEPER_FUZZ_TARGET").unwrap_or_default();
    let Some(target) = targets::named(&name) else {
        eprintln!("LOCKKEEPER_FUZZ_TARGET names no target: {name:?}; start this by `make fuzz`");
        std::process::exit(64);
    };
    target.warm_up();
    target
}

fuzz_target!(|input: &[u8]| {
    match TARGET.get_or_init(target).try_out(input) {
        Err(excess) => panic!("{excess}"),
        Ok(peak) if PEAK.fetch_max(peak, Ordering::Relaxed) < peak => eprintln!("peak: {peak} bytes"),
        Ok(_) => {}
    }
});
