//! A round of each kind of servers and of drivers, so that the comparison can be repeated: `make rivals` plays hundreds.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockkeeper_judge::record::Records;
use lockkeeper_lock::BootInstant;
use lockkeeper_palette::Theme;
use lockkeeper_rivals::activity::{Pause, stretches};
use lockkeeper_rivals::crowd::{Crowd, Plan, Word, handoffs};
use lockkeeper_rivals::faults::Fault;
use lockkeeper_rivals::picture;
use lockkeeper_rivals::round;
use lockkeeper_rivals::second::Verdict;
use lockkeeper_rivals::site::Site;
use lockkeeper_rivals::systems::{Driver, System};

/// Long enough for holders on a busy machine.
const LEASE: Duration = Duration::from_secs(10);

/// At once: they wait most of the time.
const AT_ONCE: usize = 4;

/// One for each kind of servers, with each driver among them.
const ONE_OF_EACH: &[&str] = &[
    "lockkeeper",
    "curator-mutex",
    "kazoo",
    "jdbc-row-expiry@postgres",
    "jdbc-row-expiry@mariadb",
    "redis-lock",
    "redis-lock@sentinel",
    "redlock",
    "memcached",
    "etcd-mutex",
    "hazelcast-fenced",
    "k8s-lease-defaults",
];

fn has_go() -> bool {
    let version = std::process::Command::new("go").arg("version").output();
    version.is_ok_and(|output| output.status.success())
}

#[test]
fn a_lock_of_each_kind_gets_to_the_next_one_when_its_holder_is_killed_and_never_runs_twice() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root for network namespaces and for servers of other users");
    }
    if !has_go() {
        return lockkeeper_skip::skip("needs Go, for the second judge of each round");
    }
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some(name) = ONE_OF_EACH.get(next.fetch_add(1, Ordering::Relaxed)) {
            let system = System::named(name).unwrap_or_else(|| panic!("{name} is in the table"));
            let mut site = Site::start(system.servers).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            let round = round::play(system, Fault::HolderKilled, &mut site, LEASE, 1, None)
                .unwrap_or_else(|error| panic!("{name}: {error:#}"));
            println!("{name}: {round:?}");
            assert_eq!(round.overlap, None, "{name}");
            assert!(round.gap.is_some(), "{name}: nobody ever ran again");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
}

#[test]
fn a_pause_of_the_library_stops_the_program_that_has_the_lock_and_rounds_of_one_site_do_not_disturb_one_another()
 {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root for network namespaces");
    }
    if !has_go() {
        return lockkeeper_skip::skip("needs Go");
    }
    let system = System::named("etcdctl-lock").unwrap();
    let mut site = Site::start(system.servers).unwrap();
    let lease = Duration::from_secs(4);
    let logs = tempfile::tempdir().unwrap();
    let mut play =
        |fault, seed| round::play(system, fault, &mut site, lease, seed, Some(logs.path())).unwrap();
    // `etcdctl` does not look at its lease while its command runs.
    let paused = play(Fault::LibraryPaused, 1);
    assert!(paused.overlap.is_some() && !paused.before, "{paused:?}");
    assert_eq!(paused.grew, Some(true), "{paused:?}");
    let crashed = play(Fault::HolderCrashed, 2);
    assert!(crashed.overlap.is_none() && crashed.gap.is_some(), "{crashed:?}");
    let calm = play(Fault::None, 3);
    assert!(calm.overlap.is_none() && calm.gap.is_some(), "{calm:?}");
    // What both wrote of the one round in which two ran is kept.
    let kept: Vec<_> = walk(logs.path());
    let of_round = |file: &&PathBuf| file.starts_with(logs.path().join("etcdctl-lock-library-paused-1"));
    let records = kept
        .iter()
        .filter(|file| file.extension() == Some("snapshot".as_ref()));
    assert!(
        kept.iter().all(|file| of_round(&file)) && records.count() == 2,
        "{kept:?}"
    );
}

/// The files in a folder of folders of folders.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let below = |path: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().path()).collect()
    };
    below(folder.to_owned())
        .into_iter()
        .flat_map(below)
        .flat_map(below)
        .collect()
}

/// One for each language of the drivers, and the floor.
const CROWDS: &[&str] = &[
    "lockkeeper",
    "zookeeper-floor",
    "curator-mutex",
    "kazoo",
    "etcd-mutex",
];

#[test]
fn a_crowd_in_each_language_hands_the_lock_from_one_to_the_other_and_two_never_hold_it() {
    if !rustix::process::geteuid().is_root() {
        return lockkeeper_skip::skip("needs root for network namespaces");
    }
    std::thread::scope(|scope| {
        for name in CROWDS {
            scope.spawn(move || {
                let system = System::named(name).unwrap_or_else(|| panic!("{name} is in the table"));
                if matches!(system.driver, Driver::Go) && !has_go() {
                    return lockkeeper_skip::skip("needs Go");
                }
                let servers = system.servers.start().unwrap();
                let plan = Plan {
                    contenders: 2,
                    lease: LEASE,
                    hold: Duration::from_millis(5),
                    at_once: false,
                };
                let began = BootInstant::now();
                let crowd = Crowd::start(system, &*servers, "crowd", plan).unwrap();
                let handed = |words: &[Word]| handoffs(words, began).len() >= 10;
                let found = crowd.wait_for(Duration::from_secs(120), handed).unwrap();
                found.unwrap_or_else(|| panic!("{name}: no handoffs"));
                let mut holder = None;
                let mut words = crowd.words().unwrap();
                words.sort_by_key(|word| word.at);
                for word in words {
                    match word.event.as_str() {
                        "held" => assert_eq!(holder.replace(word.who), None, "{name}: two hold"),
                        "releasing" => assert_eq!(holder.take(), Some(word.who), "{name}"),
                        _ => {}
                    }
                }
            });
        }
    });
}

#[test]
fn an_independent_checker_finds_a_planted_overlap_and_a_token_that_falls_as_ours_does() {
    if !has_go() {
        return lockkeeper_skip::skip("needs Go");
    }
    let directory = tempfile::tempdir().unwrap();
    let first = "begin 5 100000000 7 one\nbeat 5 105000000 7\nbeat 5 140000000 7\nbeat 5 300000000 7\n";
    let at = |millis: u64| BootInstant::from_nanos(millis * 1_000_000);
    let paused = [Pause {
        contender: 0,
        from: at(141),
        to: at(299),
    }];
    let judge_with = |second: &str, pauses: &[Pause]| {
        let files = [("one", first), ("two", second)].map(|(name, text)| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).unwrap();
            file
        });
        let records = files.each_ref().map(|file| Records::read(file).unwrap().records);
        let ours = Verdict::ours(&stretches(&records, pauses));
        assert_eq!(Verdict::of_porcupine(&files, pauses).unwrap(), ours, "{second}");
        (ours.mutex, ours.fenced)
    };
    let judge = |second: &str| judge_with(second, &paused);
    assert_eq!(judge(""), (true, true));
    // While the machine of the first one is stopped, with the same PID in a namespace of its own.
    let meanwhile = "begin 4 150000000 7 two\nbeat 4 190000000 7\n";
    assert_eq!(judge(meanwhile), (true, false));
    // One that is silent for as long, and was not stopped, ran.
    assert_eq!(judge_with(meanwhile, &[]), (false, false));
    // Two programs of one contender, whose lines alternate.
    assert_eq!(
        judge("begin 6 310000000 7 two\nbegin 7 320000000 8 two\nbeat 6 330000000 7\nbeat 7 340000000 8\n"),
        (false, false)
    );
    assert_eq!(
        judge("begin 6 310000000 7 two\nbeat 6 350000000 7\n"),
        (true, true)
    );
    assert_eq!(
        judge("begin 6 130000000 7 two\nbeat 6 160000000 7\n"),
        (false, false)
    );
    assert_eq!(judge("begin 6 310000000 7 two\nbeat 6 350"), (true, true));
    // It lost the lock, and got it again before anybody else: client-go counts changes of the holder only.
    assert_eq!(
        judge("begin 6 310000000 7 two\nbeat 6 350000000 7\nbegin 6 900000000 8 two\n"),
        (true, true)
    );
}

#[test]
fn what_the_page_says_is_what_the_results_say() {
    let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let read = |name: &str| std::fs::read_to_string(documents.join(name)).unwrap();
    let results = lockkeeper_rivals::results::Kept::read(&documents.join("rivals/results.json")).unwrap();
    let again = "write them anew: make comparison";
    assert!(
        read("comparison.md") == lockkeeper_rivals::page::render(&results),
        "{again}"
    );
    for theme in Theme::ALL {
        let name = theme.as_str();
        assert!(
            read(&format!("rivals/heat-map-{name}.svg")) == picture::heat_map(&results, theme),
            "{again}"
        );
        assert!(
            read(&format!("rivals/scatter-{name}.svg")) == picture::scatter(&results, theme),
            "{again}"
        );
    }
}
