//! Input of users: options, files, locks.

use std::time::Duration;

use lockkeeper_crds::DistributedLockSpec;
use lockkeeper_daemon::credentials::Credentials;
use lockkeeper_daemon::duration;
use lockkeeper_lock::LockPath;
use lockkeeper_lock::zookeeper::{ConnectString, Reader};
use lockkeeper_operator::addresses::Network;

use super::{JSON, texts};
use crate::Target;

/// Connect strings, paths, identities, durations and networks, as in options and in locks.
pub(crate) const ARGUMENTS: Target = Target {
    name: "arguments",
    longest: 2048,
    // A server of one byte is a struct of 32 bytes in a list that grows to twice its size; sentences show the text.
    bound: |input| 256 * input.len() + 4096,
    seeds: || {
        texts([
            "a:1,b:2/x/y",
            "tcp://a:1,tcp+tls://b:2/x",
            "[::1]:2181,[fe80::1%eth0]",
            "a:1/x/,b:2/y/../z",
            "/lockkeeper/locks/B\u{fc}cher/\u{1f512}",
            "/zookeeper",
            "digest:super:xQJmxLMiHGwaqBvst5y6rkB6HQs=",
            "1500ms",
            "18446744073709551615h",
            "169.254.0.0/16",
            "fe80::/129",
        ])
    },
    words: &[
        "tcp://",
        "tcp+tls://",
        "[",
        "]",
        ":",
        ",",
        "/",
        "..",
        "%",
        "digest:",
        "ms",
        "h",
        "::1",
    ],
    run: |input| {
        let text = String::from_utf8_lossy(input);
        if let Ok(connect) = text.parse::<ConnectString>() {
            assert_eq!(connect.to_string().parse(), Ok(connect.clone()), "{connect}");
            assert!(!connect.servers().is_empty());
            for server in connect.servers() {
                assert!(server.port > 0 && !server.host.is_empty() && !server.host.contains(['/', ',']));
            }
        }
        if let Ok(path) = text.parse::<LockPath>() {
            assert_eq!(path.to_string(), text);
            assert!(
                path.to_string()
                    .split('/')
                    .all(|part| part != "." && part != "..")
            );
        }
        if text.parse::<Reader>().is_ok() {
            assert!(text.starts_with("digest:") && text.ends_with('='));
        }
        if let Ok(time) = duration::parse(&text) {
            assert_eq!(duration::parse(&duration::format(time)), Ok(time));
        }
        let _ = text.parse::<Network>();
    },
};

/// The file with credentials for ZooKeeper.
pub(crate) const CREDENTIALS: Target = Target {
    name: "credentials",
    longest: 4096,
    // An identity of three bytes is a string of 24 bytes in a list that grows to twice its size.
    bound: |input| 64 * input.len() + 1024,
    seeds: || {
        texts([
            "u:p",
            "digest:u.2:new\nu.1:old\n",
            "u:p:q:\r\n",
            "digest:digest:u:p",
            "",
            "u:\n:p",
            "secret",
        ])
    },
    words: &["digest:", ":", "\n", "\r\n"],
    run: |input| {
        let Ok(text) = std::str::from_utf8(input) else {
            return;
        };
        match Credentials::parse(text) {
            // The message is constant, so that it shows nothing of a password.
            Err(problem) => assert!(problem.ends_with("one in each line")),
            Ok(identities) => {
                assert!(!identities.is_empty());
                for identity in identities {
                    assert!(!identity.contains('\n') && text.contains(&identity));
                    let (user, password) = identity.split_once(':').expect("both");
                    assert!(!user.is_empty() && !password.is_empty());
                }
            }
        }
    },
};

/// The `spec` of a `DistributedLock`.
pub(crate) const LOCK_SPEC: Target = Target {
    name: "lock-spec",
    longest: 4096,
    // Some texts, each copied into a sentence; and the document written again.
    bound: |input| 32 * input.len() + 16 * 1024,
    seeds: || {
        texts([
            "{\"mode\":\"Semaphore\",\"maxHolders\":3,\"sessionTimeout\":\"15s\",\"renewInterval\":\"1s\",\"stopGrace\":\"3s\"}",
            "{\"mode\":\"ReadWrite\",\"onLoss\":\"Pause\",\"onSuspect\":\"Pause\",\"lockDelay\":\"1h\"}",
            "{\"zookeeper\":{\"connect\":\"a:1,tcp+tls://b:2/x\",\"credentialsSecret\":\"s\",\"tlsSecret\":\"t\"}}",
            "{\"sessionTimeout\":\"18446744073709551615ms\",\"stopGrace\":\"9223372036854775807h\"}",
            "{}",
        ])
    },
    words: JSON,
    run: |input| {
        let Ok(spec) = serde_json::from_slice::<DistributedLockSpec>(input) else {
            return;
        };
        let written = serde_json::to_vec(&spec).expect("JSON");
        assert_eq!(
            serde_json::from_slice::<DistributedLockSpec>(&written)
                .ok()
                .as_ref(),
            Some(&spec)
        );
        for tick in [Duration::from_secs(2), Duration::MAX] {
            if let Ok(timing) = spec.validate(tick) {
                assert!(timing.check().is_ok());
            }
        }
    },
};
