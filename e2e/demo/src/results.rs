//! The files that stay after the demonstration.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use lockkeeper_judge::timeline::{Timeline, svg};
use lockkeeper_testbed::binaries;

use crate::console::Console;
use crate::options::{Act, Options};

/// Writes the picture of a timeline, once for each theme, and prints the paths.
pub(crate) fn draw(
    console: &mut Console,
    timeline: &Timeline,
    file: PathBuf,
    options: &Options,
) -> anyhow::Result<()> {
    let title = "Lockkeeper: who ran under the lock, and when";
    for file in [Some(file), options.svg.clone()].into_iter().flatten() {
        let files = lockkeeper_palette::write(&file, |theme| svg::render(timeline, title, theme))
            .context("cannot write the picture")?;
        for file in files {
            console.line(&format!("Picture: {}", file.display()))?;
        }
    }
    Ok(())
}

/// The directory for these files, without those of an earlier run: tokens of two ensembles cannot be
/// compared.
pub(crate) fn results_directory(options: &Options) -> anyhow::Result<PathBuf> {
    let directory = match &options.results {
        Some(directory) => directory.clone(),
        None => binaries::target_directory()?.join("demo"),
    };
    // The two acts keep their files beside each other.
    let cleared = match options.act {
        Act::Run => clear(&directory),
        Act::Kubernetes => fs::create_dir_all(&directory),
    };
    cleared.with_context(|| format!("cannot prepare {}", directory.display()))?;
    Ok(directory)
}

fn clear(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|kind| kind == "record" || kind == "log")
        {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}
