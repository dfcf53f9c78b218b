//! The guarded program: it appends a line to a file every few milliseconds, for as long as it runs. See the
//! library's `record` module for the format.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use lockkeeper_judge::chain;
use lockkeeper_judge::record::{Access, Moment, Record};
use lockkeeper_lock::BootInstant;

/// Appends a line to FILE in each period, until SIGTERM or for a given time.
#[derive(Parser)]
#[command(name = "lockkeeper-recorder")]
struct Args {
    /// The file to append to; several programs may share it.
    file: PathBuf,
    /// Its name in the file.
    #[arg(long, default_value = "worker")]
    name: String,
    /// The lock's token.
    #[arg(long, env = "LOCKKEEPER_FENCING_TOKEN", allow_hyphen_values = true)]
    token: i64,
    /// Time between two lines.
    #[arg(long, default_value = "5ms", value_parser = duration)]
    period: Duration,
    /// End by itself after this time.
    #[arg(long, value_parser = duration)]
    hold: Option<Duration>,
    /// End by itself when this file appears, and remove it: one program ends for each such file.
    #[arg(long, value_name = "FILE")]
    until: Option<PathBuf>,
    /// Exit with this code.
    #[arg(long, default_value_t = 0)]
    exit_code: u8,
    /// Do not end on SIGTERM.
    #[arg(long)]
    ignore_sigterm: bool,
    /// Record read access.
    #[arg(long)]
    read: bool,
    /// Leave this many orphans in sessions of their own, which record, too, and end only when killed.
    #[arg(long, default_value_t = 0)]
    fork: u32,
    /// Also start this many chains of processes, each of which records, forks the next one and ends.
    #[arg(long, default_value_t = 0)]
    chains: u32,
    /// Time for which each of these waits before it makes the next one.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    chain_rest: Duration,
    /// Internal, for `--fork`: start an orphan and end.
    #[arg(long, hide = true)]
    go_between: bool,
}

fn main() -> io::Result<ExitCode> {
    let args = Args::parse();
    if args.go_between {
        rustix::process::setsid()?;
        orphan(&args, false)?.spawn()?;
        return Ok(ExitCode::SUCCESS);
    }
    let terminated = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::clone(&terminated))?;
    let mut log = Log {
        file: File::options().append(true).create(true).open(&args.file)?,
        token: args.token,
    };

    let access = if args.read { Access::Read } else { Access::Write };
    let begin = log.write(Moment::Begin {
        name: args.name.clone(),
        access,
    })?;
    for _ in 0..args.fork {
        orphan(&args, true)?.status()?;
    }
    for _ in 0..args.chains {
        chain::begin(|| {
            log.write(Moment::Beat)?;
            std::thread::sleep(args.chain_rest);
            Ok(())
        })?;
    }
    loop {
        let now = BootInstant::now();
        let over = args.hold.is_some_and(|hold| now - begin >= hold)
            || args
                .until
                .as_ref()
                .is_some_and(|file| std::fs::remove_file(file).is_ok());
        if over || (terminated.load(Ordering::Relaxed) && !args.ignore_sigterm) {
            log.write(Moment::End)?;
            return Ok(ExitCode::from(args.exit_code));
        }
        let left = args
            .hold
            .map_or(args.period, |hold| hold.saturating_sub(now - begin));
        std::thread::sleep(args.period.min(left));
        log.write(Moment::Beat)?;
    }
}

struct Log {
    file: File,
    token: i64,
}

impl Log {
    /// One write of one line: with O_APPEND the lines of several processes do not mix.
    fn write(&mut self, moment: Moment) -> io::Result<BootInstant> {
        let at = BootInstant::now();
        let line = format!(
            "{}\n",
            Record {
                moment,
                token: self.token,
                at,
                pid: std::process::id()
            }
        );
        self.file.write_all(line.as_bytes())?;
        Ok(at)
    }
}

/// A process that ignores SIGTERM, and whose parent, a go-between, ends at once.
fn orphan(args: &Args, go_between: bool) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .arg(&args.file)
        .args([
            "--name",
            &format!("{}-orphan", args.name),
            "--token",
            &args.token.to_string(),
        ])
        .args(["--period", &format!("{}us", args.period.as_micros())])
        .arg("--ignore-sigterm")
        .args(args.read.then_some("--read"))
        .args(go_between.then_some("--go-between"))
        .stdin(Stdio::null());
    Ok(command)
}

/// `5ms`, `2s`, `300us`.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number
        .parse()
        .map_err(|_| format!("\"{text}\" does not start with a whole number"))?;
    match unit {
        "s" => Ok(Duration::from_secs(number)),
        "ms" => Ok(Duration::from_millis(number)),
        "us" => Ok(Duration::from_micros(number)),
        _ => Err(format!("\"{text}\" needs a unit: 2s, 5ms or 300us")),
    }
}
