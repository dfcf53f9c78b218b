//! Reads a file of `/proc` line by line in memory that was set aside before.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// Bytes read at once. What is of interest stands at the beginning of a line; what follows (an
/// overlay's list of layers, say) may be longer than this and is skipped.
pub(super) const BUFFER: usize = 8192;

/// The memory for one line.
#[derive(Debug)]
pub(super) struct Lines(Box<[u8; BUFFER]>);

impl Lines {
    pub(crate) fn new() -> Self {
        Self(Box::new([0; BUFFER]))
    }

    /// Calls `visit` with each line until it says true, and says whether it did. Of a line longer
    /// than [`BUFFER`] it gets the beginning.
    ///
    /// # Errors
    /// When the file cannot be read to its end: what was not seen may be there.
    pub(crate) fn any(
        &mut self,
        file: &OwnedFd,
        mut visit: impl FnMut(&[u8]) -> bool,
    ) -> Result<bool, Errno> {
        let buffer = &mut *self.0;
        let mut filled = 0;
        let mut skipping = false;
        loop {
            let read = match rustix::io::read(file, &mut buffer[filled..]) {
                // The last line of a file in /proc ends as all others do.
                Ok(0) => return Ok(filled > 0 && !skipping && visit(&buffer[..filled])),
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error),
            };
            filled += read;
            let mut from = 0;
            while let Some(len) = buffer[from..filled].iter().position(|byte| *byte == b'\n') {
                if !std::mem::take(&mut skipping) && visit(&buffer[from..from + len]) {
                    return Ok(true);
                }
                from += len + 1;
            }
            buffer.copy_within(from..filled, 0);
            filled -= from;
            if filled == BUFFER {
                if !std::mem::replace(&mut skipping, true) && visit(&buffer[..]) {
                    return Ok(true);
                }
                filled = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn lines(content: &str) -> Vec<String> {
        let mut file = tempfile::tempfile().expect("a temporary file");
        file.write_all(content.as_bytes()).expect("written");
        std::io::Seek::rewind(&mut file).expect("rewound");
        let mut seen = Vec::new();
        let found = Lines::new().any(&file.into(), |line| {
            seen.push(String::from_utf8_lossy(line).into_owned());
            false
        });
        assert_eq!(found, Ok(false));
        seen
    }

    #[test]
    fn each_line_is_seen_before_between_and_behind_lines_of_any_length() {
        assert_eq!(lines(""), Vec::<String>::new());
        assert_eq!(lines("a\n\nb"), ["a", "", "b"]);
        for len in [1, BUFFER - 60, BUFFER - 1, BUFFER, 3 * BUFFER + 7] {
            let long = "x".repeat(len);
            let beginning = &long[..len.min(BUFFER)];
            assert_eq!(lines(&format!("{long}\na\n")), [beginning, "a"], "{len}");
            assert_eq!(lines(&format!("a\n{long}\n")), ["a", beginning], "{len}");
            assert_eq!(
                lines(&format!("{long}\n{long}\na\n{long}\n")),
                [beginning, beginning, "a", beginning],
                "{len}"
            );
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_an_empty_one() {
        let directory = rustix::fs::open("/", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty());
        let read = Lines::new().any(&directory.expect("a directory"), |_| false);
        assert_eq!(read, Err(Errno::ISDIR));
    }
}
