//! `grpc`: one call of `grpc.health.v1.Health/Check` over HTTP/2 without TLS (RFC 9113; "gRPC over
//! HTTP2"; `health.proto`).
//!
//! Written by hand, since one small call needs little of HTTP/2: everything that we send fits into the
//! first flow-control windows, our header fields need no table (RFC 7541, 6.2.2), and of the answer
//! only the message matters. A server without a message gives the reason in header fields, which are not decoded:
//! without a message the probe fails. It costs 6 kB of the static binary.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::tcp::connect;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Types of frames (RFC 9113, 6).
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;

// Flags.
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Our only stream.
const STREAM: u32 = 1;

/// The default of SETTINGS_MAX_FRAME_SIZE, which we do not raise.
const LONGEST_FRAME: usize = 16_384;

/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u64 = 1;

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Asks, and checks the answer.
pub(super) async fn check(host: &str, port: u16, service: &str) -> Result<(), String> {
    let mut stream = connect(host, port).await?;
    let authority = match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    };
    match call(&mut stream, &authority, service).await {
        Ok(SERVING) => Ok(()),
        Ok(status) => Err(format!(
            "the service is {}",
            match status {
                0 => "UNKNOWN",
                2 => "NOT_SERVING",
                3 => "SERVICE_UNKNOWN",
                _ => "in a state that health.proto does not know",
            }
        )),
        Err(problem) => Err(format!("no answer of a gRPC health service: {problem}")),
    }
}

pub(crate) async fn call(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    authority: &str,
    service: &str,
) -> Result<u64, String> {
    let broken = |error: std::io::Error| error.to_string();
    let mut out = PREFACE.to_vec();
    out.extend(frame(SETTINGS, 0, 0, &[]));
    out.extend(frame(HEADERS, END_HEADERS, STREAM, &header_block(authority)));
    out.extend(frame(DATA, END_STREAM, STREAM, &message(&request(service))));
    stream.write_all(&out).await.map_err(broken)?;
    let mut message = Vec::new();
    loop {
        let Frame {
            kind,
            flags,
            stream: of,
            payload,
        } = read_frame(stream).await?;
        match (kind, of) {
            (SETTINGS, 0) if flags & ACK == 0 => {
                let ack = frame(SETTINGS, ACK, 0, &[]);
                stream.write_all(&ack).await.map_err(broken)?;
            }
            (PING, 0) if flags & ACK == 0 => {
                let ack = frame(PING, ACK, 0, &payload);
                stream.write_all(&ack).await.map_err(broken)?;
            }
            (DATA, STREAM) => message.extend_from_slice(without_padding(flags, &payload)?),
            (RST_STREAM, STREAM) => return Err("the server refused the call".to_owned()),
            (GOAWAY, _) => return Err("the server ended the connection".to_owned()),
            // CONTINUATION cannot end a stream, and other frames do not matter here.
            _ => {}
        }
        if of == STREAM && matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            return status(&message);
        }
        if message.len() > LONGEST_FRAME {
            return Err("the answer is longer than any of a health service".to_owned());
        }
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    // All of ours are shorter than LONGEST_FRAME: the name of a service is limited.
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> Result<Frame, String> {
    let broken = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => error.to_string(),
    };
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.map_err(broken)?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > LONGEST_FRAME {
        return Err("what answers does not speak HTTP/2".to_owned());
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await.map_err(broken)?;
    Ok(Frame {
        kind,
        flags,
        // The first bit is reserved.
        stream: u32::from_be_bytes(id) & (u32::MAX >> 1),
        payload,
    })
}

fn without_padding(flags: u8, payload: &[u8]) -> Result<&[u8], String> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    payload
        .split_first()
        .and_then(|(padding, rest)| rest.get(..rest.len().checked_sub(usize::from(*padding))?))
        .ok_or_else(|| "a frame has more padding than content".to_owned())
}

/// Literal fields without indexing and without Huffman's code.
fn header_block(authority: &str) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/grpc.health.v1.Health/Check"),
        (":authority", authority),
        ("content-type", "application/grpc"),
        (
            "user-agent",
            concat!("kube-probe/lockkeeper-", env!("CARGO_PKG_VERSION")),
        ),
        ("te", "trailers"),
    ] {
        block.push(0);
        for text in [name, value] {
            integer(&mut block, 7, text.len());
            block.extend(text.as_bytes());
        }
    }
    block
}

/// An integer with a prefix of some bits (RFC 7541, 5.1).
fn integer(block: &mut Vec<u8>, bits: u32, value: usize) {
    let most = (1 << bits) - 1;
    if value < most {
        return block.push(value as u8);
    }
    block.push(most as u8);
    varint(block, (value - most) as u64);
}

/// Seven bits at a time, the lowest first: HPACK and protobuf write numbers so.
fn varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// `HealthCheckRequest { string service = 1; }`.
fn request(service: &str) -> Vec<u8> {
    let mut message = Vec::new();
    if !service.is_empty() {
        message.push(1 << 3 | 2);
        varint(&mut message, service.len() as u64);
        message.extend(service.as_bytes());
    }
    message
}

/// A message of gRPC: not compressed, its length, itself.
fn message(content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX);
    let mut message = vec![0];
    message.extend(length.to_be_bytes());
    message.extend(content);
    message
}

/// `HealthCheckResponse { ServingStatus status = 1; }`; a field that is not there is 0.
fn status(message: &[u8]) -> Result<u64, String> {
    let Some((&[compressed, _, _, _, length], content)) = message.split_first_chunk::<5>() else {
        return Err("it has no health service, or does not know the service".to_owned());
    };
    if compressed != 0 || content.len() != usize::from(length) {
        return Err("the answer is none of a health service".to_owned());
    }
    match content {
        [] => Ok(0),
        // Field 1, varint; all states fit into seven bits.
        [0x08, status] if *status < 0x80 => Ok((*status).into()),
        _ => Err("the answer is none of a health service".to_owned()),
    }
}
