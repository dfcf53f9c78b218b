//! Checks record files for overlaps; see the library's `checker` module.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use lockkeeper_judge::checker::{Rule, check_with_pauses};
use lockkeeper_judge::record::Records;
use lockkeeper_judge::timeline::{Timeline, svg};

/// Proves from the files of guarded programs that no two of them ran at the same time.
///
/// Prints a table of the runs. Exits with 1 when two overlapped, or tokens did not grow, and with 2 when
/// there is nothing to check.
#[derive(Parser)]
#[command(name = "lockkeeper-check")]
struct Args {
    /// Files written by lockkeeper-recorder or CuratorContender on one machine, since one boot.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// How many may hold at the same time.
    #[arg(long, conflicts_with = "read_write", value_parser = clap::value_parser!(u16).range(1..))]
    max_holders: Option<u16>,
    /// Readers may share; a writer runs alone.
    #[arg(long)]
    read_write: bool,
    /// A program that wrote nothing for this many milliseconds was paused, and did not hold meanwhile.
    #[arg(long, value_name = "MILLISECONDS")]
    silence: Option<u64>,
    /// Draw the holds, once for light and once for dark pages: into holds-light.svg and holds-dark.svg if FILE is
    /// holds.svg.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let mut records = Vec::new();
    for file in &args.files {
        let mut read = Records::read(file)?;
        if read.torn {
            eprintln!("{}: the last line is torn and left out", file.display());
        }
        records.append(&mut read.records);
    }
    let rule = match (args.read_write, args.max_holders) {
        (true, _) => Rule::ReadWrite,
        (false, None | Some(1)) => Rule::Exclusive,
        (false, Some(limit)) => Rule::AtMost(limit.into()),
    };
    let silence = args.silence.map_or(Duration::MAX, Duration::from_millis);
    let report = check_with_pauses(&records, rule, silence);
    print!("{report}");
    if let Some(file) = args.svg {
        let timeline = Timeline::of(&report);
        lockkeeper_palette::write(&file, |theme| svg::render(&timeline, "Who held the lock", theme))
            .context("cannot write the picture")?;
    }
    Ok(if report.holds.is_empty() {
        ExitCode::from(2)
    } else if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}
