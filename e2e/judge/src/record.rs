//! The records of guarded programs: one line per moment, appended in one write.
//!
//! ```text
//! begin <token> <boottime_ns> <pid> <name> [read]
//! beat <token> <boottime_ns> <pid>
//! end <token> <boottime_ns> <pid>
//! ```
//!
//! The last line of a process shows when its last instructions ran, also after SIGKILL. Times are of
//! `CLOCK_BOOTTIME`, so files of programs on one machine can be compared.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use lockkeeper_lock::BootInstant;

/// The event of a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moment {
    Begin {
        /// Its name, for users; without spaces.
        name: String,
        access: Access,
    },
    /// It still ran.
    Beat,
    /// It is about to end by itself.
    End,
}

/// Shared or exclusive access. Every holder is a writer unless the lock has readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Excludes all others.
    #[default]
    Write,
    /// Together with other readers.
    Read,
}

/// One line of a record file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub moment: Moment,
    /// The fencing token that the program was started with.
    pub token: i64,
    pub at: BootInstant,
    pub pid: u32,
}

/// A line that is not a [`Record`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(String);

/// The records of a file, and whether its last line was torn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// In the order of the file.
    pub records: Vec<Record>,
    /// The file ended within a line: the machine crashed, or this reader was faster than the writer.
    pub torn: bool,
}

impl Records {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or a line other than the last is malformed, with that line.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&String::from_utf8_lossy(&bytes)).with_context(|| path.display().to_string())
    }

    /// Parses the contents of a file. Text behind the last newline counts as torn, even if it looks whole:
    /// `…12` may be the beginning of `…123`.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let (whole, rest) = text.rsplit_once('\n').unwrap_or(("", text));
        let records = whole
            .lines()
            .enumerate()
            .map(|(index, line)| line.parse().with_context(|| format!("line {}", index + 1)))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            records,
            torn: !rest.is_empty(),
        })
    }
}

/// Reads a record file while it grows.
#[derive(Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
}

impl Tail {
    /// Reads from the beginning of the file, which may not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            offset: 0,
        }
    }

    /// The records that have been added since the last call. A torn line is returned when its rest is there.
    ///
    /// # Errors
    /// As [`Records::read`]; a later call does not return these lines again.
    pub fn read(&mut self) -> anyhow::Result<Vec<Record>> {
        let mut added = String::new();
        match File::open(&self.path) {
            Ok(mut file) => {
                file.seek(SeekFrom::Start(self.offset))?;
                file.read_to_string(&mut added)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        }
        let whole = added.rfind('\n').map_or("", |end| &added[..=end]);
        self.offset += whole.len() as u64;
        Ok(Records::parse(whole)
            .with_context(|| self.path.display().to_string())?
            .records)
    }
}

impl FromStr for Record {
    type Err = Malformed;

    fn from_str(line: &str) -> Result<Self, Malformed> {
        parse(line).ok_or_else(|| Malformed(line.to_owned()))
    }
}

fn parse(line: &str) -> Option<Record> {
    let mut words = line.split(' ');
    let kind = words.next()?;
    let token = words.next()?.parse().ok()?;
    let at = BootInstant::from_nanos(words.next()?.parse().ok()?);
    let pid = words.next()?.parse().ok()?;
    let moment = match kind {
        "begin" => {
            let name = words.next().filter(|name| !name.is_empty())?.to_owned();
            let access = match words.next() {
                None => Access::Write,
                Some("read") => Access::Read,
                Some(_) => return None,
            };
            Moment::Begin { name, access }
        }
        "beat" => Moment::Beat,
        "end" => Moment::End,
        _ => return None,
    };
    words.next().is_none().then_some(Record {
        moment,
        token,
        at,
        pid,
    })
}

impl fmt::Display for Record {
    /// The line without its newline.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match &self.moment {
            Moment::Begin { .. } => "begin",
            Moment::Beat => "beat",
            Moment::End => "end",
        };
        write!(f, "{kind} {} {} {}", self.token, self.at.as_nanos(), self.pid)?;
        match &self.moment {
            Moment::Begin {
                name,
                access: Access::Write,
            } => write!(f, " {name}"),
            Moment::Begin {
                name,
                access: Access::Read,
            } => write!(f, " {name} read"),
            Moment::Beat | Moment::End => Ok(()),
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "\"{}\" is not a record: expected \"begin TOKEN NANOSECONDS PID NAME [read]\", \
             \"beat TOKEN NANOSECONDS PID\" or \"end TOKEN NANOSECONDS PID\"",
            self.0
        )
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_writes_is_what_the_checker_reads() {
        for line in [
            "begin 7 100 42 alice",
            "begin -1 100 42 bob read",
            "beat 7 105 42",
            "end 7 110 42",
        ] {
            assert_eq!(line.parse::<Record>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn a_torn_last_line_is_left_out_even_if_it_looks_whole() {
        let records = Records::parse("begin 7 100 42 alice\nbeat 7 12").unwrap();
        assert_eq!((records.records.len(), records.torn), (1, true));
        let records = Records::parse("begin 7 100 42 alice\nbeat 7 125 42").unwrap();
        assert_eq!((records.records.len(), records.torn), (1, true));
        assert_eq!(Records::parse("").unwrap(), Records::default());
    }

    #[test]
    fn a_growing_file_is_read_line_by_line_and_nothing_twice() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record");
        let mut tail = Tail::new(&path);
        assert_eq!(tail.read().unwrap(), []);
        std::fs::write(&path, "begin 7 100 42 alice\nbeat 7 1").unwrap();
        assert_eq!(tail.read().unwrap().len(), 1);
        assert_eq!(tail.read().unwrap(), []);
        std::fs::write(&path, "begin 7 100 42 alice\nbeat 7 105 42\n").unwrap();
        assert_eq!(tail.read().unwrap()[0].to_string(), "beat 7 105 42");
    }

    #[test]
    fn a_malformed_line_in_the_middle_is_refused_and_named() {
        let error = Records::parse("beat 7 100 42\nbeat 7 x 42\nbeat 7 110 42\n").unwrap_err();
        assert!(
            format!("{error:#}").starts_with("line 2: \"beat 7 x 42\" is not a record"),
            "{error:#}"
        );
    }
}
