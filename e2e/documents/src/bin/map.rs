//! Writes the map of all modules into the documentation.

use std::process::ExitCode;

use lockkeeper_documents::{MAP, root, written};

fn main() -> ExitCode {
    let done =
        written().and_then(|page| std::fs::write(root().join(MAP), page).map_err(|error| error.to_string()));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockkeeper-map: cannot write {MAP}: {error}");
            ExitCode::FAILURE
        }
    }
}
