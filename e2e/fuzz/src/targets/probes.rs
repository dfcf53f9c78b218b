//! Probes of the application: their settings, and the application's answers.

use lockkeeper_sidecar::fuzzing;
use lockkeeper_sidecar::probes::{AppProbes, Kind};

use super::{JSON, texts};
use crate::Target;
use crate::bytes::{self, connection};

/// `LOCKKEEPER_APP_PROBES`.
pub(crate) const PROBE_SETTINGS: Target = Target {
    name: "probe-settings",
    longest: 4096,
    // A header of 24 bytes is a struct of 48 bytes in a list that grows to twice its size, then one in a table that
    // has room for a third more; the names of methods and hosts are copied some times.
    bound: |input| 64 * input.len() + 8192,
    seeds: || {
        texts([
            "{\"liveness\":{\"httpGet\":{\"path\":\"/healthz?a=b\",\"port\":8080,\"httpHeaders\":[{\"name\":\"a\",\"value\":\"b\"}]},\
             \"timeoutSeconds\":2}}",
            "{\"startup\":{\"tcpSocket\":{\"port\":8080,\"host\":\"::1\"},\"initialDelaySeconds\":4294967295,\"periodSeconds\":4294967295,\
             \"failureThreshold\":4294967295}}",
            "{\"readiness\":{\"grpc\":{\"port\":1,\"service\":\"a\"}},\"preStop\":{\"httpGet\":{\"port\":80,\"scheme\":\"HTTPS\",\"host\":\"a:b\"}}}",
            "{\"startup\":{\"exec\":{\"command\":[\"a\"]}},\"postStart\":{\"httpGet\":{\"port\":\"web\"}}}",
            " ",
            "{\"livenes\":{}}",
        ])
    },
    words: JSON,
    run: |input| {
        let text = String::from_utf8_lossy(input);
        match AppProbes::parse(Some(&text), None) {
            Err(problem) => assert!(!problem.is_empty()),
            Ok(probes) => {
                for kind in Kind::ALL {
                    assert!(probes.check(kind).is_none_or(|check| !check.timeout.is_zero()));
                }
            }
        }
    },
};

/// The application's answer to `httpGet`.
pub(crate) const PROBE_ANSWERS: Target = Target {
    name: "probe-answers",
    longest: 32 * 1024,
    // The input once more; hyper's buffers, which take heads of 16 KiB at most, and a hundred headers.
    bound: |input| 2 * input.len() + 192 * 1024,
    seeds: || {
        let mut seeds = texts([
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            "HTTP/1.1 302 Found\r\nLocation: /other?a=b\r\n\r\n",
            "HTTP/1.1 301 Moved\r\nLocation: //127.0.0.1:2/x\r\n\r\n",
            "HTTP/1.1 307 Temporary\r\nLocation: http://user@127.0.0.1:99999/x#y\r\n\r\n",
            "HTTP/1.1 308 Permanent\r\nLocation: ../up\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/0.9 200",
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        ]);
        seeds.push(format!("HTTP/1.1 200 OK\r\na: {}", "a".repeat(30_000)).into_bytes());
        seeds
    },
    words: &[
        "HTTP/1.1 ",
        "302 ",
        "\r\n",
        "\r\n\r\n",
        "Location: ",
        "http://",
        "//",
        "/",
        "127.0.0.1",
        "[::1]",
        "@",
        ":99999",
        "%zz",
    ],
    run: |input| {
        let Ok(answer) = bytes::run(fuzzing::probe_answer(connection(input))) else {
            return;
        };
        let from = "http://127.0.0.1:1/a/healthz".parse().expect("a URI");
        for location in answer.headers().get_all("location") {
            if let Some(next) = fuzzing::redirect(&from, location) {
                // A redirect is followed only on the same host, and over TCP.
                assert!(
                    next.host() != from.host() || matches!(next.scheme_str(), Some("http" | "https")),
                    "{next}"
                );
            }
        }
    },
};

/// The application's answer to `grpc`.
pub(crate) const GRPC_ANSWERS: Target = Target {
    name: "grpc-answers",
    longest: 80 * 1024,
    // The input once more; a message of 16 KiB and one frame more, which grows to twice its size; one frame, and its
    // echo.
    bound: |input| input.len() + 8 * 16 * 1024,
    seeds: || {
        let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
            let length = u32::try_from(payload.len()).expect("a short one").to_be_bytes();
            [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
        };
        let settings = frame(4, 0, 0, &[0, 3, 0, 0, 0, 100]);
        let head = frame(1, 4, 1, b"\x88");
        let serving = frame(0, 0, 1, b"\0\0\0\0\x02\x08\x01");
        let trailers = frame(1, 5, 1, b"\x00");
        let whole = [&settings, &frame(4, 1, 0, &[]), &head, &serving, &trailers]
            .map(Vec::as_slice)
            .concat();
        let padded = [&settings, &head, &frame(0, 9, 1, b"\x02\0\0\0\0\0\0\0")]
            .map(Vec::as_slice)
            .concat();
        let long = frame(0, 0, 1, &[0; 16_384]).repeat(4);
        vec![
            whole,
            padded,
            long,
            [settings, frame(6, 0, 0, &[7; 8]), frame(3, 0, 1, &[0; 4])].concat(),
            frame(7, 0, 0, &[0; 8]),
            frame(0, 9, 1, &[255]),
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
        ]
    },
    words: &[
        "\0\0\0\0\x02\x08\x01",
        "\0\0\x07\0\x01\0\0\0\x01",
        "\0\0\0\x04\0\0\0\0\0",
        "\0\x40\0",
        "\0\0\x08\x06\0\0\0\0\0",
    ],
    run: |input| match bytes::run(fuzzing::grpc_status(&mut connection(input))) {
        Ok(status) => assert!(status < 0x80),
        Err(problem) => assert!(!problem.is_empty()),
    },
};
