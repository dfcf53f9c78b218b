//! Answers of image registries, and pull secrets.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use lockkeeper_operator::admission::callers::Callers;
use lockkeeper_operator::admission::image::Credentials;
use lockkeeper_operator::fuzzing::{self, Document};
use oci_spec::distribution::Reference;

use super::{JSON, texts};
use crate::Target;
use crate::bytes::{self, connection};

/// Most bytes of a body here; the operator takes 1 MiB of a manifest and 64 KiB of a token.
const BODY: usize = 16 * 1024;

/// Longest command line of an image, in bytes.
const COMMAND: usize = 128 * 1024;

/// Whole answers: status, head, body, and the target of a redirect.
pub(crate) const REGISTRY_ANSWERS: Target = Target {
    name: "registry-answers",
    longest: 48 * 1024,
    // The input once more; hyper's buffers for a head of 16 KiB and a hundred headers; the body, in parts and in one.
    bound: |input| 2 * input.len() + 128 * 1024 + 3 * BODY,
    seeds: || {
        let mut seeds = texts([
            "HTTP/1.1 200 OK\r\nDocker-Content-Digest: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\r\n\
             Content-Length: 2\r\n\r\n{}",
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer realm=\"https://auth.example/token?a=b\",service=\"registry.example\",\
             scope=\"a:b,c\"\r\n\r\n",
            "HTTP/1.1 401 Unauthorized\r\nWww-Authenticate: Basic realm=\"gate\"\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 307 Temporary Redirect\r\nLocation: https://other.example/blob?x=y#z\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: /v2/other\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "HTTP/1.1 301 Moved\r\nLocation: //evil.example/x\r\n\r\n",
            "HTTP/1.1 307 Temporary\r\nLocation: http://[::ffff:169.254.169.254]:80/latest\r\n\r\n",
        ]);
        seeds.push(format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(2 * BODY)).into_bytes());
        seeds.push(format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(101)).into_bytes());
        seeds
    },
    words: &[
        "HTTP/1.1 200 OK\r\n",
        "\r\n",
        "\r\n\r\n",
        "Location: ",
        "WWW-Authenticate: Bearer ",
        "realm=\"",
        "service=\"",
        "\\\"",
        "Content-Length: ",
        "Transfer-Encoding: chunked\r\n",
        "https://",
        "http://",
        "//",
        "@",
        "#",
        "?",
        "%2f",
        ":0",
        ":99999",
        "[::1]",
    ],
    run: |input| {
        let Some(answer) = bytes::run(fuzzing::registry_answer(connection(input), BODY)) else {
            return;
        };
        assert!((100..1000).contains(&answer.status) && answer.body.len() <= BODY);
        const HOME: &str = "https://registry.example:5000/v2/app/manifests/1";
        if let Some((to, is_beside)) = answer
            .location
            .and_then(|location| fuzzing::follow(HOME, &location))
        {
            assert_eq!(
                is_beside,
                to.starts_with("https://registry.example:5000/"),
                "{to}"
            );
            assert_eq!(
                fuzzing::url(&to),
                Some(to.clone()),
                "what is written is read back"
            );
            assert!(
                !to.contains('@') || to.find('@') > to[8..].find('/'),
                "no name and no password: {to}"
            );
        }
        if let Some((Some(realm), service)) = answer.challenge.and_then(|header| fuzzing::challenge(&header))
            && let Some(url) = fuzzing::url(&realm)
        {
            let asked = fuzzing::with_parameter(&url, service.as_deref().unwrap_or_default()).expect("a URL");
            assert!(asked.starts_with(&url), "{asked}");
            // A service contains only its value.
            assert!(
                asked[url.len()..]
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"?&=%-._~".contains(&byte))
            );
            assert_eq!(asked[url.len()..].matches(['?', '&']).count(), 1);
        }
    },
};

/// Manifests, indexes and configurations.
pub(crate) const REGISTRY_DOCUMENTS: Target = Target {
    name: "registry-documents",
    longest: 64 * 1024,
    // A word of two bytes and its comma is a string of 24 bytes, in a list that grows to twice its size and is
    // copied then; an entry of 13 bytes is a struct of 80.
    bound: |input| 48 * input.len() + 4096,
    seeds: || {
        let digest = fuzzing::sha256(b"");
        let mut seeds = texts([
            "{\"config\":{\"Entrypoint\":[\"/a\"],\"Cmd\":[\"b\",\"c\"],\"User\":\"1000:1000\"}}",
            "{\"config\":null,\"manifests\":null}",
            "{\"config\":{\"Entrypoint\":null}}",
        ]);
        let index = format!(
            "{{\"manifests\":[{{\"digest\":\"{digest}\",\"platform\":{{\"os\":\"linux\",\"architecture\":\"amd64\"}}}},\
             {{\"digest\":\"{digest}\",\"platform\":{{\"os\":\"unknown\",\"architecture\":\"unknown\"}}}},{{\"digest\":\"\"}}]}}"
        );
        seeds.push(index.into_bytes());
        seeds.push(format!("{{\"config\":{{\"digest\":\"{digest}\"}}}}").into_bytes());
        seeds.push(digest.into_bytes());
        seeds.push(format!("{{\"config\":{{\"Cmd\":[{}\"\"]}}}}", "\"\",".repeat(18_000)).into_bytes());
        seeds
    },
    words: JSON,
    run: |input| {
        if let Some(Document::Index(entries)) = fuzzing::document(input) {
            for entry in entries {
                assert!(
                    entry.runs(None) || !entry.runs(Some("amd64")),
                    "one of the platforms is one of all"
                );
            }
        }
        if let Some(config) = fuzzing::configuration(input) {
            let words = config.entrypoint.iter().chain(&config.cmd).chain([&config.user]);
            assert!(
                words.map(|word| word.len() + 8).sum::<usize>() <= COMMAND,
                "a kernel takes it"
            );
        }
        let text = String::from_utf8_lossy(input);
        assert!(!fuzzing::is_digest(&text) || (text.len() == 71 && !text.contains('/')));
    },
};

pub(crate) const PULL_SECRETS: Target = Target {
    name: "pull-secrets",
    longest: 4096,
    // An entry of 5 bytes is one of 96 in a leaf of a map with eleven; then a struct of 72 in a list that grows to
    // twice its size, for each of the two forms in turn.
    bound: |input| 256 * input.len() + 4096,
    seeds: || {
        texts([
            "{\"auths\":{\"https://index.docker.io/v1/\":{\"auth\":\"aHViOnNlY3JldA==\"},\"registry.example/team\":{\"username\":\"u\",\
             \"password\":\"p\"},\"*.example\":{\"auth\":\"OnA=\"}}}",
            "{\"registry.example\":{\"username\":\"u\",\"password\":\"p\",\"email\":\"e\"}}",
            "{\"auths\":{\"x\":{\"auth\":\"!\"}}}",
            "{\"auths\":{\"\":{\"username\":\"u\"},\"*\":{\"username\":\"v\"},\"*.*\":{\"username\":\"w\"}}}",
            "{}",
        ])
    },
    words: &[
        "{",
        "}",
        "\"auths\":{",
        "\"auth\":\"",
        "\"username\":\"",
        "\"password\":\"",
        "https://",
        "*.",
        "registry.example",
        "/",
        "\"a\":{},",
        "/v1/",
    ],
    run: |input| {
        let secret = |key: &str| Secret {
            data: Some(BTreeMap::from([(key.to_owned(), ByteString(input.to_vec()))])),
            ..Secret::default()
        };
        let image: Reference = "registry.example/team/app:1".parse().expect("an image");
        for key in [".dockerconfigjson", ".dockercfg"] {
            let credentials = Credentials::of(&secret(key));
            let found = credentials.matching(&image);
            // A registry gets credentials only if the text names it, or has a wildcard.
            let text = String::from_utf8_lossy(input);
            let may_match = text.contains("registry.example") || text.contains('*') || text.contains('\\');
            assert!(found.is_empty() || may_match, "{found:?}");
        }
    },
};

pub(crate) const IMAGE_NAMES: Target = Target {
    name: "image-names",
    longest: 2048,
    // The regular expression keeps its working memory, which grows up to 2 MiB for a new kind of text
    // (`dfa_size_limit` and the like of the crate `regex`); the parts of the name are copied.
    bound: |input| (4 << 20) + 16 * input.len(),
    seeds: || {
        texts([
            "busybox",
            "registry.example:5000/team/app:1.2@sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "[fd00::1]:5000/app",
            "docker.io/library/a__b--c.d",
            "169.254.169.254/latest/meta-data",
            "a/../b:c",
            "A/b",
        ])
    },
    words: &[
        ":5000",
        "/",
        ":",
        "@sha256:",
        "..",
        "%2f",
        "?",
        "#",
        "docker.io/",
        "[::1]",
        "__",
        "-",
    ],
    run: |input| {
        let Ok(image) = String::from_utf8_lossy(input).parse::<Reference>() else {
            return;
        };
        let target = format!("/v2/{}/", image.repository());
        let Some(url) = fuzzing::url(&format!("https://{}{target}", image.registry())) else {
            return;
        };
        // Name and path stay within this URL.
        assert!(url.ends_with(&target), "{url} of {target}");
        assert!(
            !image.repository().contains("..") && !url.contains(['?', '#', '@', '%', '\\']),
            "{url}"
        );
        assert!(image.digest().is_none_or(|digest| !digest.contains('/')));
    },
};

/// Certificates of callers (DER), and authorities for them (PEM, `--client-ca`).
pub(crate) const CERTIFICATES: Target = Target {
    name: "certificates",
    longest: 4096,
    // A part of some bytes is a struct of up to 300 bytes, in lists that grow to twice their size; names are copied.
    bound: |input| 256 * input.len() + 64 * 1024,
    seeds: || {
        let key = rcgen::KeyPair::generate().expect("a key");
        let names = ["kube-apiserver".to_owned(), "a.example".to_owned()];
        let mut of = rcgen::CertificateParams::new(names).expect("names");
        of.distinguished_name
            .push(rcgen::DnType::CommonName, "kube-apiserver");
        of.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = of.self_signed(&key).expect("signed");
        vec![
            certificate.der().to_vec(),
            certificate.pem().into_bytes(),
            b"-----BEGIN CERTIFICATE-----\n".to_vec(),
        ]
    },
    words: &[
        "-----BEGIN CERTIFICATE-----\n",
        "-----END CERTIFICATE-----\n",
        "\x30\x7f",
        "\x02\x01",
        "\x06\x03\x55\x04\x03",
        "\x06\x03\x55\x1d\x11",
    ],
    run: |input| {
        for name in fuzzing::names(input) {
            assert!(name.len() <= input.len());
        }
        if let Err(problem) = Callers::certified(input, vec!["kube-apiserver".to_owned()]) {
            assert!(!problem.is_empty());
        }
    },
};
