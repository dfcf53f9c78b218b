//! The statuses that the operator makes of the queues.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use k8s_openapi::jiff::Timestamp;
use lockkeeper_crds::lock::DistributedLockStatus;
use lockkeeper_lock::{FencingToken, Mode};
use lockkeeper_operator::controller::status::{Observation, Readiness, observed};
use lockkeeper_operator::lock_key::LockKey;
use lockkeeper_operator::zookeeper::queues::picture::{Contender, Picture};

use super::texts;
use crate::Target;

/// The longest message of a condition, in bytes (`Condition` of Kubernetes: `maxLength` of `message`).
const MESSAGE: usize = 32 * 1024;

/// The most bytes that one contender may take in a status: an object has 1.5 MiB at most in etcd, and up to a
/// thousand holders are shown. (For names that consist only of letters of three bytes and of quotation marks;
/// for real ones it is a third.)
const SHOWN: usize = 3000;

/// Names and data of contenders, up to the status: name, line end, data, then a zero byte.
pub(crate) const QUEUE_STATUS: Target = Target {
    name: "queue-status",
    longest: 16 * 1024,
    // A contender of two bytes is a struct of 350 bytes, in the picture, in the queue and in the status, which are
    // lists that grow to twice their size; and the status is written once.
    bound: |input| 4096 * input.len() + 64 * 1024,
    seeds: || {
        let data = |state: &str, pod: &str| {
            format!(
                "{{\"v\":1,\"state\":\"{state}\",\"pod\":{{\"namespace\":\"shop\",\"name\":\"{pod}\",\"uid\":\"u\",\"node\":\"n1\"}},\
                 \"revision\":\"6c9d\",\"since\":\"2026-01-02T03:04:05Z\",\"stopBudgetMillis\":3000}}"
            )
        };
        let (held, waits) = (data("held", "report-1"), data("waiting", "report-2"));
        let mut seeds = texts([
            "_c_a-lock-0000000001\n10.0.0.7\0_c_b-__READ__0000000002\n\0latch\n",
            "_c_a-lock-0000000001\n{\"state\":\"held\",\"stopBudgetMillis\":18446744073709551615,\"since\":\"-009999-01-01T00:00:00Z\"}",
        ]);
        seeds.push(format!("_c_a-lock-0000000001\n{held}\0_c_b-lock-0000000002\n{waits}\0").into_bytes());
        seeds.push(format!("_c_a-lock-0000000001\n{}", data("held", &"\\u0001".repeat(2000))).into_bytes());
        seeds.push(format!("{}-lock-0000000001\n{{\"state\":\"held\"}}", "a".repeat(12_000)).into_bytes());
        seeds
    },
    words: &[
        "-lock-0000000001\n",
        "__READ__0000000002\n",
        "\0",
        "{\"state\":\"held\"",
        "\"pod\":{",
        "\"since\":\"",
        "\"stopBudgetMillis\":",
        "\\u0001",
        "Z",
    ],
    run: |input| {
        let key = LockKey::new("shop", "report");
        let mut picture = Picture::default();
        for (number, record) in input.split(|byte| *byte == 0).enumerate() {
            let end = record
                .iter()
                .position(|byte| *byte == b'\n')
                .unwrap_or(record.len());
            let name = String::from_utf8_lossy(&record[..end]).into_owned();
            let data = record.get(end + 1..).unwrap_or_default();
            let token = FencingToken(i64::try_from(number).expect("a few"));
            picture.put(&key, Contender::read(name, token, true, data));
        }
        let queue = picture.queue(&key).expect("it was put").clone();
        for mode in [Mode::Exclusive, Mode::Semaphore(NonZeroU32::MAX), Mode::Read] {
            let participants = queue.participants(mode);
            let seen = Observation {
                generation: Some(1),
                queue: &queue,
                participants: &participants,
                pods: &BTreeMap::new(),
                readiness: Readiness::Ready,
                trial: None,
            };
            let status = observed(&DistributedLockStatus::default(), &seen, Timestamp::UNIX_EPOCH);
            assert!(status.conditions.iter().all(|one| one.message.len() <= MESSAGE));
            let shown = status.holders.len() + status.queue.len();
            let written = serde_json::to_vec(&status).expect("JSON");
            assert!(
                written.len() <= SHOWN * (shown + 1),
                "{} bytes for {shown}",
                written.len()
            );
        }
    },
};
