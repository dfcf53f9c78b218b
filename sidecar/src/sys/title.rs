//! What `ps` and `pkill -f` see of a process.

use std::io;

/// The bytes where the kernel has put the words of the command line, at the top of the stack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommandLine {
    start: usize,
    len: usize,
}

impl CommandLine {
    /// That of this process.
    ///
    /// # Errors
    /// When `/proc` does not tell where it is.
    pub(crate) fn own() -> io::Result<Self> {
        let stat = std::fs::read_to_string("/proc/self/stat")?;
        parse(&stat).ok_or_else(|| io::Error::other("/proc/self/stat shows no command line"))
    }

    /// Writes `title` in its place, as far as there is room. `std::env::args` has empty words afterwards.
    ///
    /// Only for a process with a single thread.
    pub(crate) fn replace(self, title: &str) {
        // SAFETY: the kernel has mapped these bytes for reading and writing, they do not belong to Rust, and with one
        // thread nothing reads them now. The C library's pointers into them still point to strings, since the last
        // byte stays zero.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<u8>(self.start), self.len)
        };
        bytes.fill(0);
        let room = self.len.saturating_sub(1).min(title.len());
        bytes[..room].copy_from_slice(&title.as_bytes()[..room]);
    }
}

/// Fields 48 and 49 of proc_pid_stat(5), `arg_start` and `arg_end`.
fn parse(stat: &str) -> Option<CommandLine> {
    // The name may contain blanks and brackets. Behind it comes field 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split_ascii_whitespace().skip(45);
    let mut next = || fields.next()?.parse::<usize>().ok();
    let (start, end) = (next()?, next()?);
    // Zeros say that this is nothing for us.
    (start > 0 && end > start).then_some(CommandLine {
        start,
        len: end - start,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_command_line_is_found_behind_any_name() {
        let fields: Vec<_> = (4..=52).map(|field| (field * 10).to_string()).collect();
        let stat = format!("7 (a) R (b) S {}", fields.join(" "));
        let found = parse(&stat).expect("fields 48 and 49");
        assert_eq!((found.start, found.len), (480, 10));
        assert!(parse("7 (a) S 1 2 3").is_none());
        let hidden = stat.replace(" 480 490 ", " 0 0 ");
        assert!(parse(&hidden).is_none());
        let own = CommandLine::own().expect("/proc");
        assert!(own.len > 0);
    }
}
