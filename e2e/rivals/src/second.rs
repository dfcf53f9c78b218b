//! A second judge: Porcupine, a checker of linearizability that knows nothing of ours, reads the same files.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::activity::{Pause, Stretch, overlap, tokens_grow};
use crate::programs::porcupine;

/// What a judge says about the records of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub struct Verdict {
    /// No two ran at once.
    pub mutex: bool,
    /// And each contender that got the lock had a higher token than all contenders before.
    pub fenced: bool,
}

impl Verdict {
    /// What we say.
    pub fn ours(stretches: &[Stretch]) -> Self {
        let mutex = overlap(stretches).is_none();
        Self {
            mutex,
            fenced: mutex && tokens_grow(stretches),
        }
    }

    /// What Porcupine says about these files, one for each contender, and what was done to them.
    ///
    /// # Errors
    /// When it cannot be built, or has no verdict.
    pub fn of_porcupine(records: &[PathBuf], pauses: &[Pause]) -> anyhow::Result<Self> {
        let mut command = Command::new(porcupine()?);
        for Pause { contender, from, to } in pauses {
            let times = format!("{contender},{},{}", from.as_nanos(), to.as_nanos());
            command.args(["--paused", &times]);
        }
        let output = command.args(records).output()?;
        ensure!(
            output.status.success(),
            "Porcupine has no verdict: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).context("Porcupine's verdict")
    }
}
