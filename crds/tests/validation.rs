//! The rules that the API server checks and the code come to the same verdict. (The rules of the generated schema are
//! evaluated here without an API server; `e2e` gives the table to a real one.)

#[path = "support/specs.rs"]
mod specs;

use std::time::Duration;

use kube::core::cel::{CompiledSchema, Validator, compile_schema};
use lockkeeper_crds::{DistributedLockSpec, definition};
use serde_json::{Value, json};
use specs::{check_in_code, random_spec};

/// The rules of the generated definition.
struct Rules {
    schema: CompiledSchema,
    validator: Validator,
}

impl Rules {
    fn new() -> Self {
        let crd = definition::crd();
        let schema = crd.spec.versions[0].schema.as_ref().unwrap();
        let schema = compile_schema(&serde_json::to_value(&schema.open_api_v3_schema).unwrap());
        assert!(!schema.has_errors(), "{:?}", schema.compilation_errors());
        Self {
            schema,
            validator: Validator::new(),
        }
    }

    /// The errors for an object, one per line.
    fn check(&self, object: &Value, old: Option<&Value>) -> Result<(), String> {
        self.validator
            .validate_compiled(&self.schema, object, old)
            .map_err(|errors| {
                let errors: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
                // This evaluator writes 12.0 where the API server writes 12.
                errors.join("\n").replace(".0s", "s")
            })
    }

    fn check_spec(&self, spec: &Value) -> Result<(), String> {
        self.check(&lock(spec.clone()), None)
    }
}

fn lock(spec: Value) -> Value {
    json!({ "metadata": { "name": "report" }, "spec": spec })
}

#[test]
fn what_is_refused_is_refused_by_the_rules_and_by_the_code_for_the_same_reason() {
    let rules = Rules::new();
    for case in specs::cases() {
        let (by_rules, by_code) = (rules.check_spec(&case.spec), check_in_code(&case.spec));
        match (&case.refused, &case.schema) {
            (None, None) => {
                assert_eq!((by_rules, by_code), (Ok(()), Ok(())), "{}", case.spec);
            }
            (Some(sentence), None) => {
                let said = by_rules.expect_err(&case.spec.to_string());
                assert!(said.contains(sentence), "rules about {}: {said}", case.spec);
                let said = by_code.expect_err(&case.spec.to_string());
                let sentence = case.code.as_ref().unwrap_or(sentence);
                assert!(said.contains(sentence), "code about {}: {said}", case.spec);
            }
            (None, Some(_)) => assert!(by_code.is_err(), "{}", case.spec),
            (Some(_), Some(_)) => panic!("refused by what? {}", case.spec),
        }
    }
}

#[test]
fn a_lock_has_a_name_that_fits_into_a_label() {
    let named = |name: &str| {
        let object = json!({ "metadata": { "name": name }, "spec": {} });
        Rules::new().check(&object, None)
    };
    assert_eq!(named(&"a".repeat(63)), Ok(()));
    for name in ["a".repeat(64), "team.report".to_owned()] {
        let said = named(&name).unwrap_err();
        assert!(said.contains("pods name their lock in a label"), "{said}");
    }
}

#[test]
fn one_sentence_is_enough_for_a_duration_that_cannot_be() {
    for spec in [
        json!({ "sessionTimeout": "15" }),
        json!({ "stopGrace": "1m30s" }),
        json!({ "renewInterval": "soon" }),
        json!({ "renewInterval": "0s" }),
        json!({ "zookeeper": { "connect": "zk", "tickTime": "99999999h" } }),
    ] {
        let said = Rules::new().check_spec(&spec).unwrap_err();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("must be a whole number and one unit"), "{said}");
    }
}

#[test]
fn rules_and_code_agree_on_any_settings() {
    let seed = specs::seed();
    let rules = Rules::new();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut verdicts = [0, 0];
    for round in 0..1_000 {
        let spec = random_spec(&mut random);
        let (by_rules, by_code) = (rules.check_spec(&spec), check_in_code(&spec));
        assert_eq!(
            by_rules.is_ok(),
            by_code.is_ok(),
            "round {round} of LOCKKEEPER_SEED={seed}: {spec}\nrules: {by_rules:?}\ncode: {by_code:?}"
        );
        verdicts[usize::from(by_code.is_ok())] += 1;
    }
    println!("seed {seed}: {} refused, {} accepted", verdicts[0], verdicts[1]);
    assert!(
        verdicts.iter().all(|count| *count > 100),
        "one-sided: {verdicts:?}"
    );
}

#[test]
fn the_settings_of_a_lock_that_nobody_described_fit_any_tick() {
    for tick in (100..=60_000).step_by(50).map(Duration::from_millis) {
        let spec = DistributedLockSpec::for_tick(tick);
        spec.validate(tick)
            .unwrap_or_else(|error| panic!("tick {tick:?}: {error}"));
        // What a server grants by default.
        assert!(
            (tick * 2..=tick * 20).contains(&spec.session_timeout.get()) || tick < Duration::from_secs(1),
            "tick {tick:?}: {}",
            spec.session_timeout
        );
    }
    let ordinary = DistributedLockSpec::for_tick(Duration::from_secs(3));
    assert_eq!(ordinary, DistributedLockSpec::default());
}

const HELD: &str = r#"{"holders": [{"pod": "a", "contender": "c", "fencingToken": 7}], "waiting": 2}"#;
const AWAITED: &str = r#"{"waiting": 1}"#;
const FREE: &str = r#"{"waiting": 0}"#;

/// The errors for a change; `status` is the status of the stored object.
fn change(old: Value, new: Value, status: Option<&str>) -> Result<(), String> {
    let object = |spec: Value| {
        let mut object = lock(spec);
        if let Some(status) = status {
            object["status"] = serde_json::from_str(status).unwrap();
        }
        object
    };
    Rules::new().check(&object(new), Some(&object(old)))
}

#[test]
fn what_all_pods_of_a_queue_must_agree_on_cannot_change_while_the_lock_is_in_use() {
    let ensemble = |connect: &str| json!({ "zookeeper": { "connect": connect } });
    for (old, new, sentence) in [
        (
            json!({}),
            json!({ "mode": "ReadWrite" }),
            "spec.mode cannot change from Exclusive to ReadWrite while the lock is in use",
        ),
        (
            json!({ "maxHolders": 3 }),
            json!({ "maxHolders": 2 }),
            "spec.maxHolders cannot shrink from 3 to 2 while the lock is in use",
        ),
        (
            json!({}),
            ensemble("a:1"),
            "spec.zookeeper cannot move to another ensemble",
        ),
        (
            ensemble("a:1"),
            json!({}),
            "spec.zookeeper cannot move to another ensemble",
        ),
        (
            ensemble("a:1"),
            ensemble("b:1"),
            "spec.zookeeper cannot move to another ensemble",
        ),
        (
            ensemble("a:1/x"),
            ensemble("a:1/y"),
            "spec.zookeeper cannot move to another ensemble",
        ),
        (
            ensemble("a:1"),
            ensemble("a:1/y"),
            "spec.zookeeper cannot move to another ensemble",
        ),
        (
            ensemble("b:1/a:1"),
            ensemble("a:1/a:1"),
            "spec.zookeeper cannot move to another ensemble",
        ),
    ] {
        for (status, numbers) in [(HELD, "(1 hold it, 2 wait)"), (AWAITED, "(0 hold it, 1 wait)")] {
            let said = change(old.clone(), new.clone(), Some(status)).unwrap_err();
            assert!(said.contains(sentence) && said.contains(numbers), "{said}");
        }
        for status in [Some(FREE), None] {
            assert_eq!(change(old.clone(), new.clone(), status), Ok(()), "{old} to {new}");
        }
    }
}

#[test]
fn what_concerns_a_pod_alone_can_change_at_any_time() {
    let ensemble = |connect: &str| json!({ "zookeeper": { "connect": connect } });
    for (old, new) in [
        (
            json!({}),
            json!({ "sessionTimeout": "30s", "stopGrace": "5s", "renewInterval": "1s" }),
        ),
        (
            json!({}),
            json!({ "onLoss": "Pause", "onSuspect": "Pause", "onExit": "Hold", "lockDelay": "5s" }),
        ),
        (
            json!({}),
            json!({ "handoff": "Never", "deletionPolicy": "Retain" }),
        ),
        (json!({ "maxHolders": 2 }), json!({ "maxHolders": 3 })),
        (ensemble("a:1,b:1/x"), ensemble("c:1,b:1/x")),
        (
            json!({ "zookeeper": { "connect": "tcp+tls://a:1", "tlsSecret": { "name": "old" } } }),
            json!({ "zookeeper": { "connect": "tcp+tls://b:1,tcp+tls://a:1", "tlsSecret": { "name": "new" } } }),
        ),
    ] {
        assert_eq!(
            change(old.clone(), new.clone(), Some(HELD)),
            Ok(()),
            "{old} to {new}"
        );
    }
}
