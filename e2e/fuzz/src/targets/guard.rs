//! The input of the guard: the keeper's frames, files of the kernel, and the hook that a user's command left.

use std::os::unix::ffi::OsStrExt;
use std::path::Component;

use lockkeeper_sidecar::fuzzing::{guard, is_part_of};
use lockkeeper_sidecar::link::protocol::{FRAME_LEN, FromGuard, ToGuard, examples};

use super::texts;
use crate::Target;
use crate::bytes::{file, parts};

/// The size of the buffer for lines of a file, in bytes.
const BUFFER: usize = 8192;

/// Frames of both directions.
pub(crate) const FRAMES: Target = Target {
    name: "frames",
    longest: 8 * FRAME_LEN,
    // A sentence about each frame that is refused.
    bound: |_| 512,
    seeds: || {
        let to = examples::of_the_keeper().into_iter().map(|frame| frame.encode());
        let from = examples::of_the_guard().into_iter().map(|frame| frame.encode());
        to.chain(from).map(Vec::from).collect()
    },
    words: &[],
    run: |input| {
        for frame in input.as_chunks().0 {
            // An accepted frame encodes to the same bytes again.
            match ToGuard::decode(frame) {
                Ok(read) => assert_eq!(read.encode(), *frame, "{read:?}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            match FromGuard::decode(frame) {
                Ok(read) => assert_eq!(read.encode(), *frame, "{read:?}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    },
};

/// `/proc/PID/stat`, in which any user chooses the name of the program.
pub(crate) const STAT: Target = Target {
    name: "stat",
    longest: 512,
    // The parser allocates nothing; a field of one byte takes 16 in the list that is compared here.
    bound: |input| 64 * input.len() + 1024,
    seeds: || {
        texts([
            "7 (sh) S 1 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 3 0 9999 0 0",
            "7 (a) R 1 (b) T 42 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 3 0 9999 0 0",
            "7 ()) Z 42 7 7 0 -1 64 0 0 0 0 0 0 0 0 20 0 1 0 18446744073709551615 0 0",
            "7 (x) X 0 0 0 0 -1",
            "7 (x)",
            ")",
        ])
    },
    words: &[") ", " ", "(", ")", "4294967296", "-1", "18446744073709551615"],
    run: |input| {
        let Some((parent, threads, started)) = guard::stat(input) else {
            return;
        };
        let text = String::from_utf8_lossy(input);
        let (_, behind) = text.rsplit_once(')').expect("there is a name");
        let fields: Vec<_> = behind.split(' ').skip(1).collect();
        // Fields 4, 20 and 22 of proc_pid_stat(5): the parser has read these very fields.
        let stands = |at: usize| {
            fields[at - 3]
                .trim_start_matches('+')
                .trim_start_matches('0')
                .to_owned()
        };
        let shown = |number: u64| {
            if number == 0 {
                String::new()
            } else {
                number.to_string()
            }
        };
        assert!(parent >= 0);
        assert_eq!(shown(parent.unsigned_abs().into()), stands(4));
        assert_eq!(shown(threads.into()), stands(20));
        assert_eq!(shown(started), stands(22));
    },
};

/// `/proc/PID/mountinfo`, in which any user chooses paths; behind an empty line our own `/proc/self/cgroup`.
pub(crate) const MOUNTINFO: Target = Target {
    name: "mountinfo",
    longest: 3 * BUFFER,
    // The buffer for lines. Beside it only what is compared here: all lines, twice.
    bound: |input| 2 * BUFFER + 128 * input.len() + 4096,
    seeds: || {
        let line = "700 650 254:1 /var/lib/kubelet/pods/6f1c/containers/app/0af3 /dev/termination-log rw - ext4 /dev/vda rw";
        let long = format!(
            "{line}\n36 35 98:0 /{} /mnt rw - overlay o rw\n{line}\n",
            "a".repeat(BUFFER)
        );
        let mut seeds = texts([
            "24 1 8:1 / / rw shared:1 - ext4 /dev/sda1 rw\n30 24 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n\n\
             0::/system.slice/cron.service\n",
            "700 600 0:26 /kubepods/pod1/a /mnt/a\\040b\\134 rw - cgroup2 cgroup rw\n\n9:pids:/x\n0::/kubepods/pod1/a/b\n",
            "700 600 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup rw\n\n0::/../other\n",
            "36 35 98:0 /mnt1 /mnt2",
        ]);
        seeds.extend([line.as_bytes().to_vec(), long.into_bytes()]);
        seeds
    },
    words: &[
        "/pods/",
        "/containers/",
        " - cgroup2 ",
        "\\040",
        "\\777",
        "\n\n0::",
        "/../",
        "/",
        " ",
    ],
    run: |input| {
        let seen = guard::lines(&file(input)).expect("it can be read");
        let whole = input.strip_suffix(b"\n").unwrap_or(input);
        let lines = whole.split(|byte| *byte == b'\n').filter(|_| !input.is_empty());
        assert!(
            lines
                .map(|line| &line[..line.len().min(BUFFER)])
                .eq(seen.iter().map(Vec::as_slice))
        );
        for line in &seen {
            if let Some(fields) = guard::mount(line) {
                assert!(fields.iter().map(Vec::len).sum::<usize>() <= line.len());
            }
            if let Some((pod, container)) = guard::pod_and_container(line) {
                assert!(!pod.contains(&b'/') && !container.contains(&b'/'));
            }
        }
        let [mountinfo, cgroup] = parts(input).map(String::from_utf8_lossy);
        if let Ok((directory, path)) = guard::place(&mountinfo, &cgroup) {
            assert!(cgroup.lines().any(|line| line.strip_prefix("0::") == Some(&path)));
            // The guard never looks for a group above its mount point.
            let is_above = directory.components().any(|part| part == Component::ParentDir);
            assert!(
                !is_above || mountinfo.contains("..") || mountinfo.contains('\\'),
                "{}",
                directory.display()
            );
        }
    },
};

/// `/proc/PID/cgroup` of ourselves and of two others, and `cgroup.events`, each behind an empty line.
pub(crate) const CGROUPS: Target = Target {
    name: "cgroups",
    longest: 2 * BUFFER,
    // The buffer for lines, and room for 37 groups: four of the container, 32 of others, and one that is read; our
    // own lines.
    bound: |input| 4 * BUFFER + 37 * 4352 + 64 * input.len(),
    seeds: || {
        // More than one line for a hierarchy, which no kernel writes.
        let [own, member] = ["0::/pod/us\n", "0::/pod/app\n"].map(|line| line.repeat(100));
        let mut seeds = vec![format!("{own}\n{member}\n{member}").into_bytes()];
        seeds.extend(texts([
            "0::/\n\n0::/../app\n\n0::/../app/below\n\npopulated 1\nfrozen 0\n",
            "9:name=systemd:/\n8:pids:/kubepods/pod1/keeper\n0::/\n\n9:name=systemd:/\n8:pids:/kubepods/pod1/app\n0::/\n\n\
             8:pids:/kubepods/pod1/app\n\npopulated 0\nfrozen 1\n",
            "0::/a/b\n\n0::/a\n\n0::/a/bc\n\nfrozen 2\n",
            "0::/\n\n0::/..\n\n0::/../..\n\n",
            "nonsense\n",
        ]));
        seeds
    },
    words: &["0::", "/", "/..", ":", "\n\n", "populated ", "frozen "],
    run: |input| {
        let [own, member, other, events] = parts(input);
        // The guard never takes a process of our own group for one of another container, which it would kill.
        assert_ne!(
            guard::is_beside(&file(own), &file(member), &file(own)),
            Some(true)
        );
        let is_beside = guard::is_beside(&file(own), &file(member), &file(other));
        if is_beside == Some(true) && !member.contains(&0) {
            let is_of = |line: &[u8]| {
                let members = member
                    .split(|byte| *byte == b'\n')
                    .filter(|line| !line.is_empty());
                members.into_iter().any(|member| line.starts_with(member))
            };
            assert!(other.split(|byte| *byte == b'\n').any(is_of));
        }
        if let Some((populated, frozen)) = guard::events(events) {
            let text = String::from_utf8_lossy(events);
            assert!(text.contains(if populated { "populated 1" } else { "populated 0" }));
            assert!(text.contains(if frozen { "frozen 1" } else { "frozen 0" }));
        }
    },
};

/// The file with the hook after the start; and an environment, which has the same format.
pub(crate) const POST_START: Target = Target {
    name: "post-start",
    longest: 4096,
    // A word of no byte is a string of 24 bytes in a list that grows to twice its size.
    bound: |input| 128 * input.len() + 1024,
    seeds: || {
        texts([
            "4711\0/bin/sh\0-c\0echo started\0",
            "4711\0",
            "4711",
            "4712\0/bin/sh\0",
            "4711\0\0\0\0",
            "LOCKKEEPER_RUNS=0000000000000007,00000000000012ab\0LOCKKEEPER_FENCING_TOKEN=7\0",
            "LOCKKEEPER_RUNS=00000000000012ab",
        ])
    },
    words: &["4711\0", "\0", "LOCKKEEPER_RUNS=", "00000000000012ab"],
    run: |input| {
        if let Some(command) = guard::post_start(input, "4711") {
            let mut written = b"4711\0".to_vec();
            for word in &command {
                written.extend_from_slice(word.as_bytes());
                written.push(0);
            }
            let input = input.strip_suffix(&[0]).unwrap_or(input);
            assert_eq!(written.strip_suffix(&[0]), Some(input));
        }
        if is_part_of(0x12ab, input) {
            let has = |word: &[u8]| input.windows(word.len()).any(|part| part == word);
            assert!(has(b"LOCKKEEPER_RUNS=") && has(b"00000000000012ab"));
        }
    },
};
