//! Files that options name.

use std::path::Path;

use crate::exit::Failure;

/// The text of a file. `what` is what the file holds.
///
/// # Errors
/// When the file cannot be read. The message never shows the content.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::usage(format!("cannot read the {what} file {}: {error}", path.display())))
}
