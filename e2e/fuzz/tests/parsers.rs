//! Every parser passes with its seeds, and with some seconds of random changes of them.
//!
//! The inputs are the same each time, so that a failure is due to the latest change. `LOCKKEEPER_SEED=17
//! cargo test -p lockkeeper-fuzz` makes others, and `make fuzz` searches for more.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::Duration;

use lockkeeper_fuzz::mutation::Mutator;
use lockkeeper_fuzz::{TARGETS, Target};
use lockkeeper_lock::BootInstant;

/// Time for each parser.
const TIME: Duration = Duration::from_secs(2);

/// More than any machine that runs tests makes in that time.
const MOST_INPUTS: usize = 10_000_000;

const SEED_VARIABLE: &str = "LOCKKEEPER_SEED";

/// An input at which a parser failed.
struct Finding {
    input: Vec<u8>,
    why: String,
}

/// Feeds a parser its seeds, and random changes of them, until the time is over or it fails. Returns how many
/// inputs it had.
fn feed(target: &Target, seed: u64, time: Duration) -> Result<usize, Finding> {
    target.warm_up();
    let seeds = (target.seeds)();
    for seed in &seeds {
        try_out(target, seed)?;
    }
    let mut mutator = Mutator::new(seed);
    let end = BootInstant::now() + time;
    for number in 0..MOST_INPUTS {
        try_out(target, &mutator.next(&seeds, target.words, target.longest))?;
        if BootInstant::now() >= end {
            return Ok(number);
        }
    }
    Ok(MOST_INPUTS)
}

fn try_out(target: &Target, input: &[u8]) -> Result<(), Finding> {
    let finding = |why: String| Finding {
        input: input.to_vec(),
        why,
    };
    match catch_unwind(AssertUnwindSafe(|| target.try_out(input))) {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(excess)) => Err(finding(excess.to_string())),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().map(String::as_str);
            let said = said.or(panic.downcast_ref::<&str>().copied());
            Err(finding(format!(
                "it panicked: {}",
                said.unwrap_or("with something else than words")
            )))
        }
    }
}

fn seed() -> u64 {
    let given = std::env::var(SEED_VARIABLE)
        .ok()
        .and_then(|seed| seed.parse().ok());
    given.unwrap_or(1)
}

fn withstands(name: &str) {
    let target = TARGETS
        .iter()
        .find(|target| target.name == name)
        .expect("a target");
    let seed = seed();
    println!("{SEED_VARIABLE}={seed}");
    match feed(target, seed, TIME) {
        Ok(inputs) => println!("{name} withstood {inputs} inputs"),
        Err(Finding { input, why }) => {
            let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{seed}"));
            std::fs::write(&file, input).expect("written");
            let file = file.display();
            panic!("{name}: {why}\nagain: make fuzz ARGS=\"--target {name} --replay {file}\"");
        }
    }
}

macro_rules! parsers {
    ($($test:ident: $name:literal,)*) => {
        $(#[test]
        fn $test() {
            withstands($name);
        })*

        #[test]
        fn no_parser_is_left_out() {
            let tested = [$($name),*];
            assert_eq!(TARGETS.map(|target| target.name), tested);
            let testing = include_str!("../../../docs/testing.md");
            for name in tested {
                assert!(testing.contains(&format!("| `{name}` |")), "docs/testing.md does not tell about {name}");
            }
        }
    };
}

parsers! {
    names_of_contenders_are_read_or_are_strangers: "contender-names",
    data_of_contenders_are_a_document_or_say_nothing: "contender-data",
    a_control_node_is_read_and_written_with_what_others_keep: "control-node",
    an_agreement_is_read_back_or_refused: "agreement",
    the_id_of_an_ensemble_is_a_uuid_or_nothing: "ensemble-id",
    no_tick_of_a_server_breaks_the_arithmetic: "tick",
    a_status_stays_small_whatever_contenders_say: "queue-status",
    options_are_read_as_they_are_written: "arguments",
    credentials_are_identities_or_are_refused_unseen: "credentials",
    a_lock_is_valid_or_refused: "lock-spec",
    frames_say_nothing_but_what_is_understood: "frames",
    a_process_is_read_from_behind_its_name: "stat",
    mounts_are_read_however_long_their_lines: "mountinfo",
    nobody_in_our_control_group_is_taken_for_another: "cgroups",
    a_hook_has_the_words_that_were_left: "post-start",
    every_request_gets_an_answer_or_none: "http-requests",
    what_answers_at_a_socket_is_a_keeper_or_not: "keeper-answers",
    probes_are_described_whole_or_refused: "probe-settings",
    an_application_answers_a_probe_or_does_not: "probe-answers",
    a_grpc_service_has_a_status_or_none: "grpc-answers",
    a_review_of_a_pod_gets_one_decision: "pod-reviews",
    a_review_of_a_workload_gets_one_decision: "workload-reviews",
    a_registry_leads_nowhere_unseen: "registry-answers",
    an_image_has_a_command_that_a_kernel_takes: "registry-documents",
    pull_secrets_open_what_they_name: "pull-secrets",
    the_name_of_an_image_leads_to_its_registry: "image-names",
    certificates_are_read_or_name_nobody: "certificates",
}

/// A parser with a bug: it panics at four bytes, of which the seed has one.
const BUG: Target = Target {
    name: "bug",
    longest: 64,
    bound: |_| 1024,
    seeds: || vec![b"{\"v\":1}".to_vec()],
    words: &["v2"],
    run: |input| assert!(!input.windows(4).any(|four| four == b"\"v2\""), "the bug"),
};

/// A parser that reserves as much memory as a length states, without a check.
const GREED: Target = Target {
    name: "greed",
    longest: 64,
    bound: |input| 64 * input.len() + 4096,
    seeds: || vec![b"length 100".to_vec()],
    words: &[],
    run: |input| {
        let length = std::str::from_utf8(input)
            .ok()
            .and_then(|text| text.strip_prefix("length ")?.parse::<u32>().ok());
        let room = Vec::<u8>::with_capacity(length.unwrap_or(0).min(1 << 24) as usize);
        std::hint::black_box(room);
    },
};

#[test]
fn a_parser_with_a_bug_is_found_out() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let found = feed(&BUG, 7, 10 * TIME);
    std::panic::set_hook(hook);
    let Finding { input, why } = found.expect_err("a finding");
    assert_eq!(why, "it panicked: the bug");
    assert!(input.windows(4).any(|four| four == b"\"v2\""));
}

#[test]
fn a_parser_that_sets_aside_what_a_length_says_is_found_out() {
    let Finding { input, why } = feed(&GREED, 7, 10 * TIME).expect_err("a finding");
    assert!(why.contains("and may take"), "{why}");
    assert!(input.starts_with(b"length "));
}
