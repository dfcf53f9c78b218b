//! The guard's own child tree: as the first process of a container, or as a subreaper above an anchor.

mod application;
mod pid1;
mod subreaper;

use std::io;
use std::os::fd::OwnedFd;

pub(super) use self::pid1::Pid1;
pub(super) use self::subreaper::Subreaper;

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    use rustix::pipe::{PipeFlags, pipe_with};
    Ok(pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?)
}
