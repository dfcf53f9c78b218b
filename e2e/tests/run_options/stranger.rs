//! A client without any identity that reaches a server: ZooKeeper's session passwords follow from the numbers
//! of the sessions (`ZooKeeperServer.generatePasswd`), so it can end the session of a holder.

use std::io::{self, Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use lockkeeper_judge::checker::{Rule, check};
use lockkeeper_product::worker::{Options, Worker, all_records};
use lockkeeper_testbed::ensemble::block_on;
use lockkeeper_testbed::process::wait_for;
use lockkeeper_testbed::{Config, Ensemble};

use crate::harness::{BOUND, Run, client, wait_for_contenders};

/// `ZooKeeperServer.superSecret`.
const SECRET: i64 = 0xB341_5C00;

/// The password of a session, which a server expects beside its number.
fn password(session: i64) -> [u8; 16] {
    // java.util.Random.
    const FACTOR: i64 = 0x5_DEEC_E66D;
    const MASK: i64 = (1 << 48) - 1;
    let mut state = (session ^ SECRET ^ FACTOR) & MASK;
    let mut bytes = [0; 16];
    for four in bytes.chunks_mut(4) {
        state = state.wrapping_mul(FACTOR).wrapping_add(11) & MASK;
        four.copy_from_slice(&((state >> 16) as u32).to_le_bytes());
    }
    bytes
}

fn send(stream: &mut TcpStream, parts: &[&[u8]]) -> io::Result<()> {
    let frame = parts.concat();
    let length = u32::try_from(frame.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, &*frame].concat())
}

fn receive(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame)?;
    Ok(frame)
}

/// Attaches to another client's session and closes it, again and again until it is over. The owner attaches
/// again as soon as it notices, and a server drops the request of a client that has lost the session in the
/// meantime (`FinalRequestProcessor`, on `SessionMovedException`).
fn end_session(server: SocketAddrV4, session: i64) {
    wait_for(BOUND, || try_to_end_session(server, session).ok()).expect("the session ends");
}

/// Ends a session, if it still exists.
fn try_to_end_session(server: SocketAddrV4, session: i64) -> io::Result<()> {
    let mut stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(BOUND))?;
    // ConnectRequest: version, last zxid seen, timeout, session, password, read-only.
    let own = session.to_be_bytes();
    let timeout = 4_000_i32.to_be_bytes();
    send(
        &mut stream,
        &[
            &[0; 12],
            &timeout,
            &own,
            &16_i32.to_be_bytes(),
            &password(session),
            &[0],
        ],
    )?;
    // ConnectResponse: version, timeout, session; without a session if there is none any more.
    let answer = receive(&mut stream)?;
    if answer[8..16] == [0; 8] {
        return Ok(());
    }
    assert_eq!(answer[8..16], own, "the server does not take the password");
    // RequestHeader: number, closeSession.
    send(&mut stream, &[&1_i32.to_be_bytes(), &(-11_i32).to_be_bytes()])?;
    receive(&mut stream)?;
    Ok(())
}

/// [`end_session`], of the run with this socket, at one server.
fn end_session_of(ensemble: &Ensemble, socket: &str, server: usize) {
    let (_, said) = client(&["status", "--socket", socket, "--output", "json"]);
    let status: serde_json::Value = serde_json::from_str(&said).unwrap();
    let session = status["session"]
        .as_str()
        .expect("a session")
        .trim_start_matches("0x")
        .to_owned();
    let session = i64::from_str_radix(&session, 16).unwrap();
    let server = ensemble.address(server);
    block_on(
        ensemble.observer(),
        || async move { end_session(server, session) },
    )
    .unwrap();
}

#[test]
fn a_holder_whose_session_a_stranger_ends_is_stopped_at_once_and_says_so() {
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    let path = ensemble.directory().join("ended.sock");
    let socket = path.to_str().unwrap();
    let options = ["--session-timeout", "30s", "--socket", socket];
    let mut run = Run::start(
        &ensemble,
        "ended",
        "/ended",
        &options,
        &["sh", "-c", "echo ran; exec sleep 600"],
    );
    assert_eq!(run.first_line(), "ran");
    end_session_of(&ensemble, socket, 0);
    // Long before its session would have expired.
    assert_eq!(run.code(), 75, "{}", run.stderr());
    // Its server may report the deletion of its node before the end of the session.
    let reasons = ["SessionEnded", "ContenderDeleted"];
    assert!(
        reasons.iter().any(|reason| run.stderr().contains(reason)),
        "{}",
        run.stderr()
    );
}

#[test]
fn with_a_lock_delay_of_a_session_nobody_runs_beside_a_holder_whose_session_a_stranger_has_ended() {
    let ensemble = Ensemble::start(Config::default()).expect("the servers start");
    let lock = "/ended-delay";
    let path = ensemble.directory().join("ended-delay.sock");
    let socket = path.to_str().unwrap();
    let options = |name| Options {
        session_timeout: Duration::from_secs(15),
        ..Options::new(&ensemble, name, lock)
            .unwrap()
            .with_run(&["--lock-delay", "15s"])
    };
    let holder = Worker::start(&ensemble, options("holder").with_run(&["--socket", socket]));
    let holder = holder.unwrap();
    let token = holder.wait_until_it_runs(0, BOUND).unwrap();
    let waiter = Worker::start(&ensemble, options("waiter")).unwrap();
    wait_for_contenders(&ensemble, lock, 2);
    // It does not learn of it, and goes on until the end of its lease.
    for server in 0..ensemble.len() {
        ensemble
            .cut(&holder.options().host, ensemble.server(server))
            .unwrap();
    }
    end_session_of(&ensemble, socket, 0);
    waiter.wait_until_it_runs(token, BOUND).unwrap();
    let next = waiter.records().unwrap()[0].token;
    let begun = waiter.last_stamp(next).unwrap();
    let goes_on = || (waiter.last_stamp(next).ok()? > begun + Duration::from_secs(1)).then_some(());
    wait_for(BOUND, goes_on).expect("the next one runs");
    let report = check(&all_records([&holder, &waiter]).unwrap(), Rule::Exclusive);
    println!("{report}");
    assert!(report.is_clean() && report.holds.len() == 2, "{report}");
}
