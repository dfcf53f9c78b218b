//! Writes the generated files, or shows the definition of the resource.

use std::path::Path;
use std::process::ExitCode;

use lockkeeper_crds::manifest::{manifests, plain};

const USAGE: &str = "\
Usage: lockkeeper-crds [ROOT]

Without ROOT: print the CustomResourceDefinition, for `kubectl apply --server-side --filename -`.
With ROOT, the root of the repository: write the generated files below it.
";

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match (arguments.next(), arguments.next()) {
        (None, _) => {
            print!("{}", plain());
            ExitCode::SUCCESS
        }
        (Some(root), None) if Path::new(&root).is_dir() => write_below(Path::new(&root)),
        (Some(_), _) => {
            eprint!("{USAGE}");
            ExitCode::from(64)
        }
    }
}

fn write_below(root: &Path) -> ExitCode {
    for manifest in manifests() {
        let path = root.join(manifest.path);
        if let Err(error) = std::fs::write(&path, manifest.content) {
            eprintln!("lockkeeper-crds: cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
        println!("{}", path.display());
    }
    ExitCode::SUCCESS
}
