//! Locks with their holders, once or as they change.

use std::collections::HashMap;
use std::pin::pin;

use futures_util::TryStreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt};
use lockkeeper_crds::DistributedLock;
use lockkeeper_daemon::exit::Failure;

use crate::output::Output;
use crate::problem::failed;

/// An API server says this when it knows no changes since a version any more (RFC 9110, 410 Gone).
pub(crate) const GONE: u16 = 410;

/// Which locks are listed, and how.
pub(crate) struct Listing {
    pub(crate) locks: Api<DistributedLock>,
    /// A selector of labels; all if there is none.
    pub(crate) selector: Option<String>,
    pub(crate) with_namespace: bool,
    pub(crate) output: Output,
}

impl Listing {
    /// Prints them once.
    pub(crate) async fn once(
        &self,
        print: &mut impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (locks, _) = self.read().await?;
        print(&self.output.list(&locks, self.with_namespace)?)
    }

    /// Prints them, and then each that is new or has changed, until the API server cannot be asked or `print` fails.
    pub(crate) async fn follow(
        &self,
        print: &mut impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (locks, mut version) = self.read().await?;
        print(&self.output.list(&locks, self.with_namespace)?)?;
        let mut shown: HashMap<_, _> = locks
            .iter()
            .map(|lock| (lock.uid(), lock.resource_version()))
            .collect();
        loop {
            self.follow_from(&version, &mut shown, print).await?;
            // The API server ends each watch after some minutes.
            let (locks, read) = self.read().await?;
            version = read;
            for lock in &locks {
                self.show(lock, &mut shown, print)?;
            }
        }
    }

    /// Prints what changes from a version on, until the API server ends that.
    async fn follow_from(
        &self,
        version: &str,
        shown: &mut Shown,
        print: &mut impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let parameters = WatchParams {
            label_selector: self.selector.clone(),
            ..WatchParams::default()
        };
        let watch = |error| failed("watch locks", &error);
        let events = self.locks.watch(&parameters, version).await.map_err(watch)?;
        let mut events = pin!(events);
        while let Some(event) = events.try_next().await.map_err(watch)? {
            match event {
                WatchEvent::Added(lock) | WatchEvent::Modified(lock) => self.show(&lock, shown, print)?,
                WatchEvent::Deleted(lock) => drop(shown.remove(&lock.uid())),
                WatchEvent::Bookmark(_) => {}
                WatchEvent::Error(status) if status.code == GONE => return Ok(()),
                WatchEvent::Error(status) => return Err(failed("watch locks", &kube::Error::Api(status))),
            }
        }
        Ok(())
    }

    fn show(
        &self,
        lock: &DistributedLock,
        shown: &mut Shown,
        print: &mut impl FnMut(&str) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let version = lock.resource_version();
        if shown.insert(lock.uid(), version.clone()) == Some(version) {
            return Ok(());
        }
        print(&self.output.changed(lock, self.with_namespace)?)
    }

    async fn read(&self) -> Result<(Vec<DistributedLock>, String), Failure> {
        read(&self.locks, self.selector.as_ref()).await
    }
}

/// The locks with these labels, and the version from which on a watch tells what changes.
pub(crate) async fn read(
    locks: &Api<DistributedLock>,
    selector: Option<&String>,
) -> Result<(Vec<DistributedLock>, String), Failure> {
    let parameters = ListParams {
        label_selector: selector.cloned(),
        ..ListParams::default()
    };
    let found = locks.list(&parameters).await;
    let found = found.map_err(|error| failed("list locks", &error))?;
    Ok((found.items, found.metadata.resource_version.unwrap_or_default()))
}

/// The version of each lock that was printed last, by the lock's UID.
type Shown = HashMap<Option<String>, Option<String>>;
