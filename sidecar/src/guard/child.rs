//! The guard's own child tree: as the first process of a container, or as a subreaper above an anchor.

mod application;
mod pid1;
mod pipe;
mod subreaper;
mod tree;

pub(super) use self::pid1::Pid1;
pub(super) use self::subreaper::Subreaper;
