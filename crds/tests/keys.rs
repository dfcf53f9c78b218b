//! The requests in labels and annotations, and the errors if they cannot be followed.

use std::collections::BTreeMap;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_crds::keys::{ALL, Access, Guard, LockRequest, OF_USERS, OF_WORKLOADS, OURS, Readiness};
use lockkeeper_crds::lock::LockMode;

type Pairs<'a> = &'a [(&'a str, &'a str)];

fn keys(pairs: Pairs) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

fn parse(labels: Pairs, annotations: Pairs) -> Result<Option<LockRequest>, String> {
    LockRequest::parse(Some(&keys(labels)), Some(&keys(annotations))).map_err(|error| error.to_string())
}

fn report() -> LockRequest {
    LockRequest {
        lock: "report".to_owned(),
        container: None,
        guard: Guard::Auto,
        readiness: Readiness::Auto,
        access: Access::Write,
        resources: None,
    }
}

#[test]
fn one_key_is_enough_as_a_label_or_as_an_annotation_or_both() {
    let lock = [("app", "report"), ("lockkeeper.io/lock", "report")];
    for (labels, annotations) in [(&lock[..], &[][..]), (&[][..], &lock[..]), (&lock[..], &lock[..])] {
        assert_eq!(parse(labels, annotations), Ok(Some(report())));
    }
    let annotations = keys(&lock);
    assert_eq!(LockRequest::parse(None, Some(&annotations)), Ok(Some(report())));
}

#[test]
fn pods_without_our_keys_ask_for_nothing() {
    assert_eq!(LockRequest::parse(None, None), Ok(None));
    assert_eq!(
        parse(
            &[("app", "x"), ("lockkeeper.iot/lock", "a,b")],
            &[("team.lockkeeper.io/x", "y")]
        ),
        Ok(None)
    );
    // Keys that we wrote ourselves on a pod that has lost its lock are not a request.
    assert_eq!(
        parse(
            &[("lockkeeper.io/role", "standby")],
            &[("lockkeeper.io/injected", "1")]
        ),
        Ok(None)
    );
}

#[test]
fn every_setting_is_read() {
    let request = parse(
        &[
            ("lockkeeper.io/lock", "report"),
            ("lockkeeper.io/access", "read"),
            ("lockkeeper.io/role", "active"),
        ],
        &[
            ("lockkeeper.io/container", "app-1"),
            ("lockkeeper.io/guard", "signal"),
            ("lockkeeper.io/readiness", "queued"),
            ("lockkeeper.io/access", "read"),
            ("lockkeeper.io/injected", "0.1.0"),
            ("lockkeeper.io/propagated", "lock"),
        ],
    );
    let expected = LockRequest {
        container: Some("app-1".to_owned()),
        guard: Guard::Signal,
        readiness: Readiness::Queued,
        access: Access::Read,
        ..report()
    };
    assert_eq!(request, Ok(Some(expected)));
    for guard in Guard::ALL {
        let annotations = [
            ("lockkeeper.io/lock", "report"),
            ("lockkeeper.io/guard", guard.as_str()),
        ];
        assert_eq!(parse(&[], &annotations).unwrap().unwrap().guard, *guard);
    }
    for readiness in Readiness::ALL {
        let annotations = [
            ("lockkeeper.io/lock", "report"),
            ("lockkeeper.io/readiness", readiness.as_str()),
        ];
        assert_eq!(parse(&[], &annotations).unwrap().unwrap().readiness, *readiness);
    }
}

#[test]
fn what_cannot_be_followed_is_refused_in_one_sentence() {
    let lock = ("lockkeeper.io/lock", "report");
    let long = "a".repeat(64);
    for (labels, annotations, said) in [
        (
            &[lock][..],
            &[("lockkeeper.io/lock", "invoice")][..],
            "a pod can have one lock, and its label lockkeeper.io/lock says `report` where its annotation says \
             `invoice`: remove one of them",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", "report, invoice")],
            "a pod can have one lock, and lockkeeper.io/lock names several (`report, invoice`): name one of them",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", "report invoice")],
            "names several (`report invoice`)",
        ),
        (&[], &[("lockkeeper.io/lock", "a,b")], "names several (`a,b`)"),
        (
            &[],
            &[("lockkeeper.io/lock", "Report")],
            "lockkeeper.io/lock is `Report`, which cannot be the name of a lock: it must be of 1 to 63 lower-case \
             letters, digits and dashes, with a letter or digit at both ends, such as report",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", "")],
            "lockkeeper.io/lock is ``, which cannot be the name",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", " report")],
            "lockkeeper.io/lock is ` report`, which cannot be the name",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", "report-")],
            "is `report-`, which cannot be the name",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", "-report")],
            "is `-report`, which cannot be the name",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", "team.report")],
            "is `team.report`, which cannot be the name",
        ),
        (
            &[],
            &[("lockkeeper.io/lock", &long)],
            "which cannot be the name of a lock: it must be of 1 to 63",
        ),
        (
            &[],
            &[lock, ("lockkeeper.io/container", "The App")],
            "lockkeeper.io/container is `The App`, which cannot be the name of a container",
        ),
        (
            &[],
            &[lock, ("lockkeeper.io/guard", "Wrap")],
            "lockkeeper.io/guard is `Wrap`, and must be one of auto, wrap, signal",
        ),
        (
            &[],
            &[lock, ("lockkeeper.io/readiness", "always")],
            "lockkeeper.io/readiness is `always`, and must be one of auto, holder, queued",
        ),
        (
            &[],
            &[lock, ("lockkeeper.io/access", "")],
            "lockkeeper.io/access is ``, and must be one of write, read",
        ),
        (
            &[("lockkeeper.io/access", "read")],
            &[lock, ("lockkeeper.io/access", "write")],
            "the label lockkeeper.io/access says `read` where the annotation says `write`: remove one of them",
        ),
        (
            &[],
            &[lock, ("lockkeeper.io/gaurd", "wrap")],
            "lockkeeper.io/gaurd is not known; the keys are lockkeeper.io/lock, lockkeeper.io/container, \
             lockkeeper.io/guard, lockkeeper.io/readiness, lockkeeper.io/access, lockkeeper.io/sidecar-resources",
        ),
        (
            &[("lockkeeper.io/lok", "report")],
            &[],
            "lockkeeper.io/lok is not known",
        ),
        (
            &[],
            &[("lockkeeper.io/container", "app")],
            "lockkeeper.io/container is there and lockkeeper.io/lock is not: add it, with the name of a \
             DistributedLock, or remove lockkeeper.io/container",
        ),
    ] {
        let error = parse(labels, annotations).unwrap_err();
        assert!(error.contains(said), "{labels:?} {annotations:?}: {error}");
        assert_eq!(error.lines().count(), 1);
    }
}

#[test]
fn a_reader_needs_a_lock_that_knows_readers() {
    let exclusive = DistributedLockSpec::default();
    let read_write = DistributedLockSpec {
        mode: LockMode::ReadWrite,
        ..DistributedLockSpec::default()
    };
    let reader = LockRequest {
        access: Access::Read,
        ..report()
    };
    assert_eq!(reader.check(&read_write), Ok(()));
    assert_eq!(report().check(&read_write), Ok(()));
    assert_eq!(report().check(&exclusive), Ok(()));
    let error = reader.check(&exclusive).unwrap_err().to_string();
    assert!(
        error.contains("the DistributedLock `report` has mode Exclusive: set its mode to ReadWrite"),
        "{error}"
    );
}

#[test]
fn every_key_is_on_the_list_of_all() {
    let source = include_str!("../src/keys.rs");
    let named = source.matches(": &str = \"lockkeeper.io/").count();
    let different: std::collections::BTreeSet<_> = ALL.into_iter().collect();
    assert_eq!(different.len(), named);
    for key in OF_USERS.iter().chain(&OF_WORKLOADS).chain(&OURS) {
        assert!(different.contains(key), "{key}");
    }
}
