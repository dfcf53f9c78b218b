//! `lockkeeper-manual FOLDER`: writes man pages and completions below a folder, as they lie below `/usr/share`.

use std::path::PathBuf;

use clap::Parser;

/// Writes man pages and completions below a folder, as they lie below /usr/share
#[derive(Parser)]
#[command(name = "lockkeeper-manual")]
struct Args {
    /// The folder; it is made if it is missing
    folder: PathBuf,
}

fn main() -> anyhow::Result<()> {
    let Args { folder } = Args::parse();
    let count = lockkeeper_manual::write(&folder)?;
    println!("{count} files in {}", folder.display());
    Ok(())
}
