//! Data that other clients write into the nodes of a lock.

use std::collections::HashSet;
use std::num::NonZeroU32;
use std::time::Duration;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_lock::fuzzing::{self, Ahead, Said};
use lockkeeper_lock::{
    Agreement, CleanRelease, ContenderData, Control, FencingToken, HOLDS_KEPT, Identity, Mode, Pod,
    Survivors, Timing, TookOver,
};

use super::{JSON, texts};
use crate::Target;

const THREE: NonZeroU32 = NonZeroU32::new(3).expect("it is not zero");

const MODES: [Mode; 4] = [Mode::Exclusive, Mode::Semaphore(THREE), Mode::Read, Mode::Write];

/// Names of children of a lock root, one in each line.
pub(crate) const CONTENDER_NAMES: Target = Target {
    name: "contender-names",
    longest: 4096,
    // A name of one byte is a string of 24 bytes in each of several lists, which grow to twice their size.
    bound: |input| 512 * input.len() + 16 * 1024,
    seeds: || {
        texts([
            "_c_b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001-lock-0000000007\nx-lock-0000000008\n__READ__0000000009",
            "_c_a-__READ__0000000007\n_c_b-__WRIT__0000000008\n_c_c-__READ__0000000009\n_c_d-__WRIT__0000000010",
            "0f3c__lock__0000000003\n0f3c__rlock__0000000004\nx-72057837408354305-0000000009\nx--915-0000000010",
            "_c_a-lock--2147483648\n_c_a-lock-2147483647\nx-7--000000001\n_c_a-lock--000000001",
            "lock-1\n_c_x-latch-0000000001\nleases\n_c_x-lock-+000000001\nlock-00000000\u{661}",
        ])
    },
    words: &[
        "lock-",
        "-lock-",
        "__READ__",
        "__WRIT__",
        "__lock__",
        "__rlock__",
        "x-",
        "0000000001",
        "-000000001",
    ],
    run: |input| {
        let text = String::from_utf8_lossy(input);
        let children: Vec<String> = text.lines().map(str::to_owned).collect();
        let known = fuzzing::sorted(&children);
        assert_eq!(known.len() + fuzzing::unknown(&children).len(), children.len());
        for contender in &known {
            // As ZooKeeper writes it ("%010d"): two names of one parent never have one number in two spellings.
            let number = format!("{:010}", contender.sequence());
            assert!(
                contender.name.ends_with(&number),
                "{} is read as {number}",
                contender.name
            );
            assert!(!fuzzing::excludes(&contender.name, &contender.name));
        }
        let names: HashSet<_> = known.iter().map(|contender| contender.name.as_str()).collect();
        let (Some(first), Some(last)) = (known.first(), known.last()) else {
            return;
        };
        for mode in MODES {
            for own in [&first.name, &last.name] {
                let ahead = Ahead::from_children(&children, own, mode).expect("it is listed");
                let place = ahead.place();
                assert_eq!(place.position == 0, place.watch.is_empty());
                assert!(place.watch.iter().all(|name| names.contains(name.as_str())));
                let mut shorter = ahead.clone();
                if let Some(watched) = place.watch.first() {
                    shorter.remove(watched, true);
                    assert!(shorter.place().position < place.position, "a deletion helps");
                }
            }
        }
    },
};

pub(crate) const CONTENDER_DATA: Target = Target {
    name: "contender-data",
    longest: 8192,
    // Five texts, each once as it is written and once more while it grows.
    bound: |input| 4 * input.len() + 4096,
    seeds: || {
        let identity = Identity {
            pod: Some(Pod {
                namespace: "shop".into(),
                name: "report-1".into(),
                uid: "6f1c".into(),
                node: "n1".into(),
            }),
            host: None,
            revision: Some("6c9d".into()),
        };
        let mut seeds = texts([
            "10.0.0.7",
            "",
            "{\"state\":7}",
            "[\"held\"]",
            "{\"state\":\"held\",\"stopBudgetMillis\":-1}",
        ]);
        let waits = Said {
            is_held: false,
            since: String::new(),
            stop_budget: Duration::ZERO,
            lease: None,
            took_over: None,
            survivors: None,
        };
        let holds = Said {
            is_held: true,
            stop_budget: Duration::from_secs(3),
            lease: Some(Duration::from_secs(8)),
            took_over: Some(TookOver {
                contender: "_c_1-lock-0000000001".to_owned(),
                pod: identity.pod.clone(),
                silent_millis: 8_100,
            }),
            survivors: Some(Survivors {
                processes: Some(2),
                pid: Some(4711),
            }),
            ..waits.clone()
        };
        seeds.push(fuzzing::contender_data(&identity, &holds));
        seeds.push(fuzzing::contender_data(&Identity::default(), &waits));
        seeds
    },
    words: JSON,
    run: |input| {
        let data = ContenderData::parse(input);
        let pod = data
            .pod
            .iter()
            .flat_map(|pod| [&pod.namespace, &pod.name, &pod.uid, &pod.node]);
        let texts = pod.chain(&data.revision).chain(&data.since).chain([&data.state]);
        let length: usize = texts.map(String::len).sum();
        // A status contains this text a thousand times.
        assert!(length <= 4096 && length <= input.len());
        if data.is_held() {
            assert_eq!(input.trim_ascii().first(), Some(&b'{'), "only a document says so");
        }
    },
};

pub(crate) const CONTROL_NODE: Target = Target {
    name: "control-node",
    longest: 160 * 1024,
    // An object with one entry has 7 bytes and is a leaf of a map of 632; each is copied once, and once more
    // for unknown fields. Data of more than 128 KiB are not read.
    bound: |input| 512 * input.len().min(128 * 1024) + 4 * input.len() + 8192,
    seeds: || {
        let release = |number| CleanRelease {
            contender: format!("_c_b3c1e3a0-lock-{number:010}"),
            token: FencingToken(number),
        };
        let mut seeds = texts([
            "{\"v\":1,\"yield\":{\"id\":\"7\",\"contenders\":[\"_c_a-lock-0000000012\"]},\"note\":{\"a\":[1,{}]}}",
            "",
            "10.0.0.7",
            "{\"v\":1,\"lastRelease\":[{\"contender\":\"a\",\"token\":1}],\"v2\":[[{\"\":{}}]]}",
            "{\"v\":1,\"holds\":[{\"contender\":\"_c_a-lock-0000000012\",\"token\":9,\"pod\":{\"namespace\":\"a\",\"name\":\"b\",\
             \"node\":\"c\"},\"since\":\"2026-03-01T08:00:00Z\",\"until\":\"2026-03-01T08:10:00Z\",\"ended\":\"TakenOver\",\
             \"takenBy\":\"db-1\",\"silentMillis\":8612},7,{\"token\":[]}]}",
            "{\"v\":1,\"holds\":{\"a\":[{}]}}",
        ]);
        let mut control = Control::default();
        for number in 0..20 {
            control = Control::parse(&control.with_release(release(number)));
        }
        seeds.push(control.to_data());
        seeds.push(format!("{{\"note\":[{}0]}}", "{\"\":0},".repeat(20_000)).into_bytes());
        seeds
    },
    words: JSON,
    run: |input| {
        let control = Control::parse(input);
        assert!(
            control
                .yield_request
                .as_ref()
                .is_none_or(|wish| wish.contenders.iter().all(|name| control.asks(name)))
        );
        let again = Control::parse(&control.to_data());
        assert_eq!(again.yield_request, control.yield_request);
        assert_eq!(again.last_release, control.last_release);
        assert_eq!(again.holds, control.holds);
        assert!(control.holds.len() <= HOLDS_KEPT);
        for hold in &control.holds {
            let pod = hold
                .pod
                .iter()
                .flat_map(|pod| [&pod.namespace, &pod.name, &pod.node]);
            let texts = [&hold.host, &hold.since, &hold.until, &hold.taken_by]
                .into_iter()
                .flatten();
            for text in pod.chain(texts).chain([&hold.contender]) {
                assert!(
                    text.len() <= 253 && text.bytes().all(|byte| byte.is_ascii_graphic()),
                    "{text:?}"
                );
            }
        }
        assert!(
            again.other.keys().eq(control.other.keys()),
            "what others keep stays"
        );
        let release = CleanRelease {
            contender: "_c_a-lock-0000000001".into(),
            token: FencingToken(9),
        };
        let next = Control::parse(&control.with_release(release.clone()));
        assert!(next.released(&release.contender) && next.last_release.len() <= 16);
    },
};

/// The data of a lock root.
pub(crate) const AGREEMENT: Target = Target {
    name: "agreement",
    longest: 2048,
    // A word with escapes is copied as it grows, and once more into the error about an unknown word. Then two
    // words, and the same written again.
    bound: |input| 6 * input.len() + 1024,
    seeds: || {
        let mut seeds: Vec<_> = MODES.map(|mode| Agreement::of(mode).to_data()).into();
        seeds.extend(texts([
            "",
            "{}",
            "{\"v\":2,\"kind\":\"exclusive\"}",
            "{\"v\":1,\"kind\":\"exclusive\",\"maxHolders\":0}",
        ]));
        seeds
    },
    words: JSON,
    run: |input| match Agreement::parse(input) {
        Ok(None) => assert!(input.is_empty()),
        Err(objection) => assert!(!objection.to_string().is_empty()),
        Ok(Some(agreement)) => {
            assert!(input.len() <= 1024);
            assert_eq!(Agreement::parse(&agreement.to_data()), Ok(Some(agreement)));
            for mode in MODES {
                assert_eq!(agreement.admits(mode).is_ok(), agreement == Agreement::of(mode));
            }
        }
    },
};

/// The data of the node with the ID of the ensemble.
pub(crate) const ENSEMBLE_ID: Target = Target {
    name: "ensemble-id",
    longest: 256,
    // Nothing is kept; the ID is written once here.
    bound: |_| 256,
    seeds: || {
        texts([
            "b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001",
            "b3c1e3a06b3f4a558d7c9a1d9e3f0001\n",
            "{b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001}",
            "urn:uuid:b3c1e3a0-6b3f-4a55-8d7c-9a1d9e3f0001",
            "10.0.0.7",
        ])
    },
    words: &["urn:uuid:", "{", "}", "-"],
    run: |input| {
        if let Some(id) = fuzzing::ensemble_id(input) {
            assert_eq!(fuzzing::ensemble_id(id.to_string().as_bytes()), Some(id));
        }
    },
};

/// A server's answer to `conf`, and the decisions from its tick.
pub(crate) const TICK: Target = Target {
    name: "tick",
    longest: 4096,
    // A copy of the text, with each invalid byte written as three; and the messages.
    bound: |input| 8 * input.len() + 8192,
    seeds: || {
        texts([
            "clientPort=2181\ndataDir=/data\ntickTime=2000\nmaxClientCnxns=60\n",
            "tickTime=18446744073709551615\n",
            "tickTime= 1 \ntickTime=2",
            "conf is not executed because it is not in the whitelist.",
        ])
    },
    words: &[
        "tickTime=",
        "\n",
        "+",
        "18446744073709551615",
        "9223372036854775807",
    ],
    run: |input| {
        let Some(tick) = fuzzing::tick(input) else { return };
        assert!(!tick.is_zero());
        let timing = Timing {
            tick_time: tick,
            ..Timing::new(Duration::from_secs(15))
        };
        let checked = timing.check();
        assert!(checked.is_err() || tick <= Duration::from_secs(15));
        let _ = DistributedLockSpec::default().validate(tick);
    },
};
