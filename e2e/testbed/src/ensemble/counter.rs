//! The leader's transaction counter, which a test sets close to its end.

use std::fs;

use anyhow::{Context, ensure};

use super::config::COUNTER_FILE;
use super::servers::Ensemble;
use super::starting::START_BOUND;
use crate::process::wait_for;

impl Ensemble {
    /// Sets the counter of the present leader, the lower half of its transactions' numbers: the next
    /// transaction is the one after it. The last number of a leader is `0xffff_fffe`; instead of using
    /// `0xffff_ffff` it gives up leading, and the next leader counts from 0.
    ///
    /// Only with [`Config::settable_counter`](super::Config::settable_counter).
    ///
    /// # Errors
    /// When there is no leader, or it ends or changes meanwhile.
    pub fn set_counter(&self, to: u32) -> anyhow::Result<()> {
        ensure!(
            self.config().settable_counter,
            "the ensemble was not made with a counter that can be set"
        );
        let leader = wait_for(START_BOUND, || self.leader()).context("no server leads")?;
        let file = self.directory_of(leader).join(COUNTER_FILE);
        let draft = file.with_extension("draft");
        fs::write(&draft, to.to_string())?;
        fs::rename(&draft, &file)?;
        wait_for(START_BOUND, || (!file.exists()).then_some(()))
            .with_context(|| format!("the counter was not set:\n{}", self.log_end(leader)))
    }
}
