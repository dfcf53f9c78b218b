//! Requests to the ensemble, over one connection. They do not use the task.

pub(super) mod agreement;
pub(super) mod attach;
pub(super) mod bar;
pub(super) mod delete;
pub(super) mod find;
pub(super) mod membership;
pub(super) mod provision;
pub(super) mod strangers;
pub(super) mod watch;
