//! The pods of the second act, and how they are observed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use lockkeeper_judge::record::{Moment, Record, Tail};
use lockkeeper_judge::timeline::{Mark, MarkKind, Timeline};
use lockkeeper_lock::BootInstant;
use lockkeeper_product::Installation;
use lockkeeper_product::space::make_records_directory;
use lockkeeper_testbed::Cluster;

use crate::console::Console;
use crate::interrupted::Interrupted;
use crate::waiting::Watched;

/// The installation, and the state of the pods behind its lock.
pub(crate) struct Scene<'a> {
    pub(crate) installation: &'a Installation<'a>,
    pub(crate) console: Console,
    pub(crate) timeline: Timeline,
    pub(crate) records: Vec<Record>,
    tail: Tail,
    folder: PathBuf,
    interrupted: Arc<AtomicBool>,
}

/// A pod that runs under the lock.
pub(crate) struct Run {
    pub(crate) token: i64,
    pub(crate) pod: String,
    pub(crate) began: BootInstant,
}

impl<'a> Scene<'a> {
    pub(crate) fn new(
        installation: &'a Installation<'a>,
        console: Console,
        interrupted: Arc<AtomicBool>,
    ) -> anyhow::Result<Self> {
        let folder = make_records_directory("demo")?;
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

    pub(crate) fn cluster(&self) -> &'a Cluster {
        self.installation.cluster()
    }

    /// The folder that pods write their records into.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Shows the command that a user would type, and runs it.
    pub(crate) fn kubectl(&mut self, words: &[&str]) -> anyhow::Result<String> {
        self.say_command(words)?;
        let answer = self.cluster().kubectl(words)?;
        self.console.print(&format!("{answer}\n"))?;
        Ok(answer)
    }

    fn say_command(&mut self, words: &[&str]) -> anyhow::Result<()> {
        Ok(self.console.print(&format!("$ kubectl {}\n", words.join(" ")))?)
    }

    /// Repeats a command until its output satisfies a condition, and shows that output.
    pub(crate) fn kubectl_until(
        &mut self,
        words: &[&str],
        pleases: impl Fn(&str) -> bool,
    ) -> anyhow::Result<()> {
        let cluster = self.cluster();
        let answer = self.wait(&format!("kubectl {}", words.join(" ")), |_| {
            cluster.kubectl(words).ok().filter(|answer| pleases(answer))
        })?;
        self.say_command(words)?;
        Ok(self.console.print(&format!("{answer}\n"))?)
    }

    /// Waits until a pod runs under a token above `than`.
    pub(crate) fn runs_after(&mut self, than: i64) -> anyhow::Result<Run> {
        self.wait("a pod runs", |scene| {
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
    pub(crate) fn last_of(&self, token: i64) -> Option<BootInstant> {
        let stamps = self.records.iter().filter(|record| record.token == token);
        stamps.map(|record| record.at).max()
    }

    /// Marks a fault, from now on until [`Timeline::unmark`].
    pub(crate) fn mark(&mut self, kind: MarkKind, label: &str) {
        self.timeline.mark(Mark {
            kind,
            label: label.to_owned(),
            from: BootInstant::now(),
            to: None,
        });
    }

    /// Reads the lines written since the last call.
    pub(crate) fn read(&mut self) -> anyhow::Result<()> {
        for record in self.tail.read().context("the records cannot be read")? {
            self.timeline.record(&record);
            self.records.push(record);
        }
        Ok(())
    }
}

impl Watched for Scene<'_> {
    /// Kubernetes takes some seconds to notice a dead node, and to pull images.
    const BOUND: Duration = Duration::from_secs(300);

    fn look(&mut self) -> anyhow::Result<()> {
        Interrupted::check(&self.interrupted)?;
        self.read()?;
        Ok(self.console.show(&self.timeline)?)
    }
}
