//! Frames survive the way over the socket, and nothing else does.

use super::*;

const TOKEN: FencingToken = FencingToken(4_294_967_331);

fn at(nanos: u64) -> BootInstant {
    BootInstant::from_nanos(nanos)
}

#[test]
fn every_frame_of_the_keeper_reads_as_it_was_written() {
    let grant = |start, pause| {
        ToGuard::Grant(Grant {
            token: TOKEN,
            start,
            pause,
            term_at: at(1),
            kill_at: at(u64::MAX),
        })
    };
    for frame in [
        grant(false, false),
        grant(true, false),
        grant(false, true),
        grant(true, true),
        ToGuard::Suspect { token: TOKEN },
        ToGuard::Confirm {
            token: FencingToken(i64::MIN),
        },
        ToGuard::Stop {
            token: TOKEN,
            kill_at: at(7),
        },
        ToGuard::Revoke { token: TOKEN },
        ToGuard::Finish { code: 75 },
    ] {
        assert_eq!(ToGuard::decode(&frame.encode()), Ok(frame));
    }
}

#[test]
fn every_frame_of_the_guard_reads_as_it_was_written() {
    for frame in [
        FromGuard::Hello {
            pid: 1,
            token: None,
            paused: false,
        },
        FromGuard::Hello {
            pid: 1,
            token: Some(TOKEN),
            paused: true,
        },
        FromGuard::Started {
            token: TOKEN,
            pid: u32::MAX,
        },
        FromGuard::Exited {
            token: TOKEN,
            code: 143,
        },
        FromGuard::Gone {
            token: TOKEN,
            code: None,
        },
        FromGuard::Gone {
            token: TOKEN,
            code: Some(0),
        },
        FromGuard::Paused { token: TOKEN },
        FromGuard::Survivors { token: TOKEN },
        FromGuard::StartFailed {
            token: TOKEN,
            errno: 2,
        },
        FromGuard::Signal { signo: 15 },
    ] {
        assert_eq!(FromGuard::decode(&frame.encode()), Ok(frame));
    }
}

#[test]
fn a_frame_that_is_not_understood_is_never_acted_on() {
    let mut frame = ToGuard::Revoke { token: TOKEN }.encode();
    frame[1] = 1;
    assert_eq!(ToGuard::decode(&frame), Err(FrameError::Contents(REVOKE)));

    assert_eq!(ToGuard::decode(&[0; FRAME_LEN]), Err(FrameError::Kind(0)));
    let of_the_guard = FromGuard::Gone {
        token: TOKEN,
        code: None,
    }
    .encode();
    assert_eq!(ToGuard::decode(&of_the_guard), Err(FrameError::Kind(GONE)));

    let mut finish = ToGuard::Finish { code: 1 }.encode();
    finish[5] = 1;
    assert_eq!(ToGuard::decode(&finish), Err(FrameError::Contents(FINISH)));

    let nobody = ToGuard::Revoke {
        token: FencingToken(0),
    }
    .encode();
    assert_eq!(ToGuard::decode(&nobody), Err(FrameError::Contents(REVOKE)));
}

#[test]
fn a_guard_of_another_release_is_told_apart_by_its_hello() {
    let mut hello = FromGuard::Hello {
        pid: 1,
        token: None,
        paused: false,
    }
    .encode();
    hello[2] = VERSION + 1;
    assert_eq!(FromGuard::decode(&hello), Err(FrameError::Version(VERSION + 1)));
}
