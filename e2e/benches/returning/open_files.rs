//! The limit of open files of this process.

use anyhow::Context as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Raises the limit to at least `files`.
///
/// # Errors
/// When the hard limit is lower and this process may not raise it.
pub fn allow(files: u64) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(files),
        maximum: limit.maximum.map(|maximum| maximum.max(files)),
    };
    setrlimit(Resource::Nofile, raised)
        .with_context(|| format!("this needs {files} open files: raise the hard limit (`ulimit -Hn`)"))
}
