//! Many random histories of the whole: see the crate's documentation.
//!
//! `LOCKKEEPER_SEED=n` repeats one history and prints it; `LOCKKEEPER_HISTORIES=n` plays more than 50: `make test`
//! plays 4,000; `LOCKKEEPER_HAZARDS=intruders,survivors` plays with only these (`all`, the default, with all of them).

use lockkeeper_fake::number;
use lockkeeper_simulation::{Hazard, Setup, history, series};

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn setup() -> Setup {
    let mut setup = Setup::default();
    if let Some(names) = text("LOCKKEEPER_HAZARDS") {
        setup.hazards = match names.as_str() {
            "all" => Hazard::ALL.to_vec(),
            names => names
                .split(',')
                .map(|name| {
                    name.parse()
                        .unwrap_or_else(|error| panic!("LOCKKEEPER_HAZARDS: {error}"))
                })
                .collect(),
        };
    }
    setup
}

#[test]
fn whatever_breaks_no_two_applications_run_at_once_and_everybody_is_served_in_the_end() {
    let setup = setup();
    if let Some(seed) = number("LOCKKEEPER_SEED") {
        let outcome = history(seed, &setup, true);
        println!("{}\n{:?}", outcome.log.join("\n"), outcome.summary);
        assert_eq!(outcome.violation, None, "LOCKKEEPER_SEED={seed}");
        return;
    }
    let histories = number("LOCKKEEPER_HISTORIES").unwrap_or(50);
    let most = number("LOCKKEEPER_FAILURES").unwrap_or(1) as usize;
    let series = series(0..histories, &setup, most, |done| {
        println!("{done} of {histories}")
    });
    println!("{} histories: {:?}", series.histories, series.sum);
    for failure in &series.failures {
        println!("LOCKKEEPER_SEED={}: {}", failure.seed, failure.violation);
    }
    if let Some(failure) = series.failures.first() {
        let log = history(failure.seed, &setup, true).log.join("\n");
        panic!("{log}\nLOCKKEEPER_SEED={}: {}", failure.seed, failure.violation);
    }
    // A simulation without starts would prove nothing.
    assert!(series.sum.starts as u64 > series.histories * 3, "{series:?}");
    assert!(series.sum.expired as u64 > series.histories / 2, "{series:?}");
    assert!(series.sum.takeovers as u64 > series.histories / 10, "{series:?}");
    assert!(series.sum.resumed as u64 > series.histories / 10, "{series:?}");
}

#[test]
fn the_same_seed_gives_the_same_history_to_the_last_line() {
    let setup = Setup {
        hazards: Hazard::ALL.to_vec(),
        ..Setup::default()
    };
    for seed in 0..20 {
        let (first, second) = (history(seed, &setup, true), history(seed, &setup, true));
        assert!(first.log.len() > 20, "{:?}", first.log);
        let differs = first
            .log
            .iter()
            .zip(&second.log)
            .find(|(first, second)| first != second);
        assert_eq!(differs, None, "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
        // The printed lines do not change the history.
        assert_eq!(history(seed, &setup, false).violation, first.violation);
    }
}
