//! Frames survive the way over the socket, and nothing else does.

use lockkeeper_lock::FencingToken;

use super::*;

/// Kinds, as they are on the wire.
const FINISH: u8 = 6;
const REVOKE: u8 = 5;
const HELLO: u8 = 65;
const GONE: u8 = 68;
const END_WANTED: u8 = 72;

const TOKEN: FencingToken = FencingToken(4_294_967_331);

const ONE: Hello = Hello {
    pid: 1,
    instance: 7,
    is_first: false,
    has_ticket: false,
    tree: None,
    containment: Containment::Sweep,
    clock: 0,
};
const HELLO_OF_ONE: FromGuard = FromGuard::Hello(ONE);

#[test]
fn every_frame_of_the_keeper_reads_as_it_was_written() {
    for frame in examples::of_the_keeper() {
        assert_eq!(ToGuard::decode(&frame.encode()), Ok(frame));
    }
}

#[test]
fn every_frame_of_the_guard_reads_as_it_was_written() {
    for frame in examples::of_the_guard() {
        assert_eq!(FromGuard::decode(&frame.encode()), Ok(frame));
    }
}

#[test]
fn there_is_an_example_of_every_frame() {
    let of_the_keeper: Vec<_> = examples::of_the_keeper()
        .iter()
        .map(|frame| frame.encode()[0])
        .collect();
    let of_the_guard: Vec<_> = examples::of_the_guard()
        .iter()
        .map(|frame| frame.encode()[0])
        .collect();
    for kind in 0..=u8::MAX {
        let mut frame = [0; FRAME_LEN];
        frame[0] = kind;
        let is_known = ToGuard::decode(&frame) != Err(FrameError::Kind(kind));
        assert_eq!(is_known, of_the_keeper.contains(&kind), "{kind} of the keeper");
        let is_known = FromGuard::decode(&frame) != Err(FrameError::Kind(kind));
        assert_eq!(is_known, of_the_guard.contains(&kind), "{kind} of the guard");
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
        had_sigterm: false,
    }
    .encode();
    assert_eq!(ToGuard::decode(&of_the_guard), Err(FrameError::Kind(GONE)));

    let mut finish = ToGuard::Finish { code: 1 }.encode();
    finish[5] = 1;
    assert_eq!(ToGuard::decode(&finish), Err(FrameError::Contents(FINISH)));

    let without_token = ToGuard::Revoke {
        token: FencingToken(0),
    }
    .encode();
    assert_eq!(ToGuard::decode(&without_token), Err(FrameError::Contents(REVOKE)));
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
        had_sigterm: false,
    };
    for at in [1, 2, 3, 4, 16, 31] {
        let mut frame = gone.encode();
        frame[at] = 4;
        assert_eq!(FromGuard::decode(&frame), Err(FrameError::Contents(GONE)), "{at}");
    }
    let mut signal = FromGuard::EndWanted { signo: 15 }.encode();
    signal[8] = 1;
    assert_eq!(FromGuard::decode(&signal), Err(FrameError::Contents(END_WANTED)));
    // Nothing is paused where nothing is.
    let mut hello = HELLO_OF_ONE.encode();
    hello[1] = 1;
    assert_eq!(FromGuard::decode(&hello), Err(FrameError::Contents(HELLO)));
    let mut hello = HELLO_OF_ONE.encode();
    hello[29] = 1;
    assert_eq!(FromGuard::decode(&hello), Err(FrameError::Contents(HELLO)));
}

/// A guard of any release reads it, so these bytes stay.
#[test]
fn a_keeper_says_in_the_same_bytes_for_ever_that_it_does_not_speak_a_guards_version() {
    let why = Refusal::Version;
    let mut bytes = [0; FRAME_LEN];
    (bytes[0], bytes[4]) = (7, 4);
    assert_eq!(ToGuard::Refuse { why }.encode(), bytes);
}

#[test]
fn a_guard_of_another_release_is_told_apart_by_its_hello() {
    let mut hello = FromGuard::Hello(Hello {
        containment: Containment::Cgroup,
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
