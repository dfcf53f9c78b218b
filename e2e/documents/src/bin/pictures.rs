//! Writes the pictures of the documentation for light and for dark pages, from their sources.

use std::process::ExitCode;

use lockkeeper_documents::{Painted, painted, root};

fn main() -> ExitCode {
    let write = |Painted { file, text, .. }: Painted| {
        std::fs::write(root().join(&file), text).map_err(|error| format!("{}: {error}", file.display()))
    };
    match painted().and_then(|all| all.into_iter().try_for_each(write)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockkeeper-pictures: cannot write a picture: {error}");
            ExitCode::FAILURE
        }
    }
}
