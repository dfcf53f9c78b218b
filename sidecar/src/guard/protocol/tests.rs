//! Frames survive the way over the socket, and nothing else does.

use super::*;

const TOKEN: FencingToken = FencingToken(4_294_967_331);

const ONE: Hello = Hello {
    pid: 1,
    instance: 7,
    is_first: false,
    token: None,
    paused: false,
    containment: None,
    clock: 0,
};
const HELLO_OF_ONE: FromGuard = FromGuard::Hello(ONE);

fn at(nanos: u64) -> BootInstant {
    BootInstant::from_nanos(nanos)
}

#[test]
fn every_frame_of_the_keeper_reads_as_it_was_written() {
    let grant = |start, pause| {
        ToGuard::Grant(Grant {
            token: TOKEN,
            generation: u32::MAX,
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
        ToGuard::Refuse {
            why: Refusal::Another,
        },
        ToGuard::Refuse { why: Refusal::User },
    ] {
        assert_eq!(ToGuard::decode(&frame.encode()), Ok(frame));
    }
}

#[test]
fn every_frame_of_the_guard_reads_as_it_was_written() {
    for frame in [
        HELLO_OF_ONE,
        FromGuard::Hello(Hello {
            pid: 1,
            instance: u64::MAX,
            is_first: true,
            token: Some(TOKEN),
            paused: true,
            containment: Some(Containment::Pidns),
            clock: 4_026_531_834,
        }),
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
        FromGuard::AtWork { token: TOKEN },
        FromGuard::Survivors {
            token: TOKEN,
            count: 3,
            pid: u32::MAX,
        },
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
fn a_frame_with_more_in_it_than_its_kind_says_is_not_understood() {
    let revoke = ToGuard::Revoke { token: TOKEN }.encode();
    // Flags, version, the reserved byte, the argument and both instants.
    for at in [1, 2, 3, 4, 16, 31] {
        let mut frame = revoke;
        frame[at] = 1;
        assert_eq!(ToGuard::decode(&frame), Err(FrameError::Contents(REVOKE)), "{at}");
    }
    let gone = FromGuard::Gone {
        token: TOKEN,
        code: None,
    };
    for at in [1, 2, 3, 4, 16, 31] {
        let mut frame = gone.encode();
        frame[at] = 2;
        assert_eq!(FromGuard::decode(&frame), Err(FrameError::Contents(GONE)), "{at}");
    }
    let mut signal = FromGuard::Signal { signo: 15 }.encode();
    signal[8] = 1;
    assert_eq!(FromGuard::decode(&signal), Err(FrameError::Contents(SIGNAL)));
    let mut hello = HELLO_OF_ONE.encode();
    hello[29] = 1;
    assert_eq!(FromGuard::decode(&hello), Err(FrameError::Contents(HELLO)));
}

#[test]
fn a_guard_of_another_release_is_told_apart_by_its_hello() {
    let mut hello = FromGuard::Hello(Hello {
        containment: Some(Containment::Cgroup),
        clock: 0,
        ..ONE
    })
    .encode();
    assert_eq!(hello[24], 1);
    hello[24] = 5;
    assert_eq!(FromGuard::decode(&hello), Err(FrameError::Contents(HELLO)));
    let mut hello = HELLO_OF_ONE.encode();
    hello[2] = VERSION + 1;
    assert_eq!(FromGuard::decode(&hello), Err(FrameError::Version(VERSION + 1)));
}
