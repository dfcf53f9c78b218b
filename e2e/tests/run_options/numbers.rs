//! The end of the sequence numbers: a lock root below which 2^31 contenders were made.
//!
//! The servers number the children of a node by the count of those that were ever made (`PrepRequestProcessor`), in 32
//! bits with a sign. Here they read that count from a log of transactions, as after a restart: it has one creation that
//! states a high count, as ZooKeeper itself writes it (`CreateTxn.parentCVersion`).

use std::fs;
use std::path::{Path, PathBuf};

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_product::worker::all_records;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};
use rustix::process::Signal;
use zookeeper_client::{Acls, CreateMode, MultiWriteError};

use crate::harness::{BOUND, Run, SHORT, contenders, wait_for_contenders, with_client, worker};

const LOCK: &str = "/used";

/// A file of ZooKeeper's log of transactions (`FileTxnLog`).
struct Transactions {
    next: u64,
    bytes: Vec<u8>,
}

impl Transactions {
    /// Its first transaction will be `first`.
    fn from(first: u64) -> Self {
        // FileHeader: magic, version, database.
        let bytes = [&b"ZKLG"[..], &2_i32.to_be_bytes(), &0_i64.to_be_bytes()].concat();
        Self { next: first, bytes }
    }

    fn push(&mut self, kind: i32, body: &[&[u8]]) {
        // TxnHeader: session, number in the session, transaction, time, kind.
        let mut entry = [
            &[0; 12][..],
            &self.next.to_be_bytes(),
            &[0; 8],
            &kind.to_be_bytes(),
        ]
        .concat();
        entry.extend(body.concat());
        self.bytes.extend(u64::from(adler32(&entry)).to_be_bytes());
        self.bytes.extend(text(&entry));
        self.bytes.push(b'B');
        self.next += 1;
    }

    /// Creates a node that all may use. `count` is how many children its parent has had then; -1 for one more.
    fn create(&mut self, path: &str, count: i32) {
        let all_rights = 31_i32.to_be_bytes();
        let acl = [
            &1_i32.to_be_bytes()[..],
            &all_rights,
            &text(b"world"),
            &text(b"anyone"),
        ]
        .concat();
        let is_ephemeral = [0];
        self.push(
            1,
            &[
                &text(path.as_bytes()),
                &text(b""),
                &acl,
                &is_ephemeral,
                &count.to_be_bytes(),
            ],
        );
    }

    fn delete(&mut self, path: &str) {
        self.push(2, &[&text(path.as_bytes())]);
    }
}

/// A string or a buffer, as ZooKeeper writes it.
fn text(bytes: &[u8]) -> Vec<u8> {
    let length = i32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes()[..], bytes].concat()
}

/// `java.util.zip.Adler32`.
fn adler32(bytes: &[u8]) -> u32 {
    const MODULUS: u32 = 65_521;
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % MODULUS;
        (low, (high + low) % MODULUS)
    });
    high << 16 | low
}

/// Servers with a lock root below which the next child gets this number.
fn servers(next: i32) -> Ensemble {
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    let servers = 0..ensemble.len();
    let epoch =
        wait_for(BOUND, || Some(ensemble.zxid(ensemble.leader()?)? >> 32)).expect("one of them leads");
    // The first transaction of that leader. Nobody has written anything yet: all of them are at its beginning.
    let first = (epoch << 32) + 1;
    let mut log = Transactions::from(first);
    let child = format!("{LOCK}/child");
    log.create(LOCK, -1);
    log.create(&child, next);
    log.delete(&child);
    servers.clone().for_each(|server| ensemble.kill(server));
    for server in servers.clone() {
        let file = data(&ensemble, server).join(format!("log.{first:x}"));
        assert!(!file.exists(), "the servers have written it");
        fs::write(file, &log.bytes).unwrap();
    }
    servers.for_each(|server| ensemble.launch(server).unwrap());
    ensemble.wait_ready().unwrap();
    ensemble
}

/// Where a server has its snapshots and its log.
fn data(ensemble: &Ensemble, server: usize) -> PathBuf {
    Path::new(ensemble.directory()).join(format!("server-{}/data/version-2", server + 1))
}

/// The numbers of the contenders, as the servers write them.
fn numbers(ensemble: &Ensemble) -> Vec<String> {
    let names = contenders(ensemble, LOCK).expect("the root is there");
    let mut numbers: Vec<_> = names
        .iter()
        .map(|name| name.rsplit_once("-lock-").expect("ours").1.to_owned())
        .collect();
    numbers.sort();
    numbers
}

/// Four contenders of another client: two that it makes one after the other, and two in one transaction.
fn four_contenders(ensemble: &Ensemble) {
    let path = |name: &str| format!("{LOCK}/_c_{name}-lock-");
    let options = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
    with_client(ensemble, async |client| {
        for name in ["a", "b"] {
            client.create(&path(name), b"", &options).await?;
        }
        let mut both = client.new_multi_writer();
        for name in ["c", "d"] {
            both.add_create(&path(name), b"", &options)?;
        }
        both.commit().await.map(drop).map_err(|error| match error {
            MultiWriteError::RequestFailed { source } | MultiWriteError::OperationFailed { source, .. } => {
                source
            }
        })
    })
    .unwrap();
}

/// Asserts that it ends with one sentence, and has run nothing.
fn assert_refused(run: &mut Run) {
    let said = (run.code(), run.stdout());
    assert_eq!((said.0, said.1.as_str()), (77, ""), "{}", run.stderr());
    let sentences = run.sentences();
    assert_eq!(sentences.len(), 1, "{}", run.stderr());
    let parts = [LOCK, "make a new lock root"];
    assert!(
        parts.iter().all(|part| sentences[0].contains(part)),
        "{sentences:?}"
    );
}

#[test]
fn the_last_numbers_of_a_lock_root_are_served_in_order_and_whoever_comes_after_them_is_refused() {
    let ensemble = servers(i32::MAX - 2);
    let holder = worker(&ensemble, "number-holder", LOCK, &[], &[]);
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = worker(&ensemble, "number-waiter", LOCK, &[], &[]);
    wait_for_contenders(&ensemble, LOCK, 2);
    assert_eq!(numbers(&ensemble), ["2147483645", "2147483646"]);

    // From now on a number is given more than once, or is negative.
    let late = |name: &str| Run::start(&ensemble, name, LOCK, &SHORT, &["echo", "ran"]);
    assert_refused(&mut late("number-late"));
    // What it has made ends with its session, and has disturbed neither of the two.
    wait_for_contenders(&ensemble, LOCK, 2);
    assert_eq!(numbers(&ensemble), ["2147483645", "2147483646"]);
    let [mut holder, mut waiter] = [holder, waiter];
    holder.guard().signal(Signal::TERM);
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    waiter.guard().signal(Signal::TERM);
    for worker in [&mut holder, &mut waiter] {
        let status = worker.wait_until_it_ends(BOUND).unwrap();
        assert!(status.success(), "{status}:\n{}", worker.log());
    }
    let report = check(&all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");

    // The root is empty: each of those that come now could conclude that it is the first.
    assert_eq!(numbers(&ensemble), [] as [&str; 0]);
    let mut together: Vec<_> = ["number-a", "number-b", "number-c", "number-d"].map(late).into();
    together.iter_mut().for_each(assert_refused);
    // Also one that comes when nothing of them is left.
    wait_for_contenders(&ensemble, LOCK, 0);
    assert_refused(&mut late("number-last"));

    // What the sentence advises.
    let mut new = Run::start(&ensemble, "number-new", "/new", &[], &["echo", "ran"]);
    assert_eq!(
        (new.code(), new.stdout().as_str()),
        (0, "ran\n"),
        "{}",
        new.stderr()
    );
}

/// What all of this is about, by the servers themselves. If they come to count on, the rule is too strict.
#[test]
fn a_run_is_refused_beside_contenders_to_whom_the_servers_gave_the_last_number_again_or_a_negative_one() {
    let ensemble = servers(i32::MAX);
    four_contenders(&ensemble);
    let numbers = numbers(&ensemble);
    // Which of them get which depends on how far the leader is with the one before.
    let (negative, last): (Vec<_>, Vec<_>) = numbers.iter().partition(|number| number.starts_with('-'));
    assert!(!negative.is_empty() && !last.is_empty(), "{numbers:?}");
    assert!(last.iter().all(|number| *number == "2147483647"), "{numbers:?}");
    let mut run = Run::start(&ensemble, "number-beside", LOCK, &SHORT, &["echo", "ran"]);
    assert_refused(&mut run);
    // It names the first one in the order of the numbers.
    assert!(
        run.sentences()[0].contains("-lock--2147483648"),
        "{}",
        run.stderr()
    );
}
