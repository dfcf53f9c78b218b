//! Builds the site of the documentation with mdBook, and checks its links: `lockkeeper-site MDBOOK [REPOSITORY]`.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use lockkeeper_documents::{Sources, faults, root, write_site};

fn main() -> ExitCode {
    match build() {
        Ok(told) => {
            println!("{told}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("lockkeeper-site: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build() -> Result<String, String> {
    let mut arguments = std::env::args().skip(1);
    let mdbook = arguments
        .next()
        .ok_or("name the program mdbook, and then the address of the repository")?;
    let sources = sources(arguments.next().filter(|address| !address.is_empty()))?;
    let (source, site) = (root().join("target/site-source"), root().join("target/site"));
    clear(&source)?;
    write_site(&source, &sources)?;
    let mut command = Command::new(&mdbook);
    command.arg("build").arg("--dest-dir").arg(&site).arg(&source);
    if let Sources::Published { repository, .. } = &sources {
        command.env("MDBOOK_OUTPUT__HTML__GIT_REPOSITORY_URL", repository);
    }
    let status = command
        .status()
        .map_err(|error| format!("{mdbook} does not start: {error}"))?;
    if !status.success() {
        return Err(format!("{mdbook} has failed: {status}"));
    }
    let found = faults(&site)?;
    if found.faults.is_empty() {
        let at = site.join("index.html");
        return Ok(format!(
            "{}: {} pages, {} links",
            at.display(),
            found.pages,
            found.links
        ));
    }
    Err(format!("the site has faults:\n{}", found.faults.join("\n")))
}

/// Where links to files besides the pages lead.
fn sources(repository: Option<String>) -> Result<Sources, String> {
    let Some(repository) = repository else {
        return Ok(Sources::Checkout);
    };
    if !repository.starts_with("https://") || repository.ends_with('/') {
        return Err(format!(
            "REPOSITORY is {repository}, but has to be the address of a repository, such as https://github.com/OWNER/NAME"
        ));
    }
    let told = Command::new("git")
        .args(["rev-parse", "HEAD"])
        .current_dir(root())
        .output();
    let told = told.map_err(|error| format!("git does not start: {error}"))?;
    let commit = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    if !told.status.success() || commit.is_empty() {
        return Err("git knows no commit here, which links to the repository would name".to_owned());
    }
    Ok(Sources::Published { repository, commit })
}

/// Removes what an earlier site was made from: a page that is gone must not come back.
fn clear(folder: &Path) -> Result<(), String> {
    let folder = PathBuf::from(folder);
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", folder.display()))
        }
        _ => Ok(()),
    }
}
