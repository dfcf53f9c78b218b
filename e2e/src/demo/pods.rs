//! What stands on the nodes in the second act, and how it is followed.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use lockkeeper_lock::BootInstant;

use super::console::Console;
use super::stage::Interrupted;
use crate::cluster::DIRECTORY;
use crate::record::{Moment, Record, Tail};
use crate::timeline::{Mark, MarkKind, Timeline};
use crate::{Cluster, Installation};

/// Kubernetes notices a dead node after some seconds, and pulls images.
const BOUND: Duration = Duration::from_secs(120);
/// Time between two looks at the records.
const POLL: Duration = Duration::from_millis(20);

/// The installation, and what is known of the pods behind its lock.
pub(super) struct Scene<'a> {
    pub(super) installation: &'a Installation<'a>,
    pub(super) console: Console,
    pub(super) timeline: Timeline,
    pub(super) records: Vec<Record>,
    tail: Tail,
    folder: PathBuf,
    interrupted: Arc<AtomicBool>,
}

/// Who runs.
pub(super) struct Run {
    pub(super) token: i64,
    pub(super) pod: String,
    pub(super) began: BootInstant,
}

impl<'a> Scene<'a> {
    pub(super) fn new(
        installation: &'a Installation<'a>,
        console: Console,
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        // The nodes have the files of this machine.
        let folder = Path::new(DIRECTORY).join("records").join("demo");
        fs::create_dir_all(&folder)?;
        fs::set_permissions(&folder, Permissions::from_mode(0o777))?;
        Ok(Self {
            installation,
            console,
            timeline: Timeline::new(BootInstant::now(), []),
            records: Vec::new(),
            tail: Tail::new(folder.join("pods.record")),
            folder,
            interrupted,
        })
    }

    pub(super) fn cluster(&self) -> &'a Cluster {
        self.installation.cluster()
    }

    /// The folder that pods write their records into.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Says what a user would type, and does it.
    pub(super) fn kubectl(&mut self, words: &[&str]) -> anyhow::Result<String> {
        self.say_command(words)?;
        let answer = self.cluster().kubectl(words)?;
        self.console.print(&format!("{answer}\n"))?;
        Ok(answer)
    }

    fn say_command(&mut self, words: &[&str]) -> anyhow::Result<()> {
        Ok(self.console.print(&format!("$ kubectl {}\n", words.join(" ")))?)
    }

    /// Asks the same until the answer pleases, and shows that.
    pub(super) fn kubectl_until(
        &mut self,
        words: &[&str],
        pleases: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        let cluster = self.cluster();
        let answer = self.until(&format!("kubectl {}", words.join(" ")), |_| {
            cluster.kubectl(words).ok().filter(|answer| pleases(answer))
        })?;
        self.say_command(words)?;
        Ok(self.console.print(&format!("{answer}\n"))?)
    }

    /// Waits until a pod runs under a token above `than`.
    pub(super) fn runs_after(&mut self, than: i64) -> anyhow::Result<Run> {
        self.until("a pod runs", |scene| {
            scene.records.iter().find_map(|record| match &record.moment {
                Moment::Begin { name, .. } if record.token > than => Some(Run {
                    token: record.token,
                    pod: name.clone(),
                    began: record.at,
                }),
                _ => None,
            })
        })
    }

    /// The last instruction under a token.
    pub(super) fn last_of(&self, token: i64) -> Option<BootInstant> {
        let stamps = self.records.iter().filter(|record| record.token == token);
        stamps.map(|record| record.at).max()
    }

    /// Something that was broken, from now on until [`Timeline::unmark`].
    pub(super) fn mark(&mut self, kind: MarkKind, label: &str) {
        self.timeline.mark(Mark {
            kind,
            label: label.to_owned(),
            from: BootInstant::now(),
            to: None,
        });
    }

    /// Reads the records and draws until there is an answer.
    fn until<T>(&mut self, what: &str, mut answer: impl FnMut(&mut Self) -> Option<T>) -> anyhow::Result<T> {
        let end = BootInstant::now() + BOUND;
        loop {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            self.read()?;
            if let Some(answer) = answer(self) {
                return Ok(answer);
            }
            if BootInstant::now() >= end {
                bail!("not within {BOUND:?}: {what}");
            }
            self.console.show(&self.timeline)?;
            std::thread::sleep(POLL);
        }
    }

    /// Takes what was written since into account.
    pub(super) fn read(&mut self) -> anyhow::Result<()> {
        for record in self.tail.read().context("the records cannot be read")? {
            self.timeline.record(&record);
            self.records.push(record);
        }
        Ok(())
    }
}
