//! Whether an installation is whole: what the API server has of it, read and judged.

mod counted;
mod findings;
mod installed;
mod read;

use std::time::Duration;

use kube::Client;
use lockkeeper_daemon::duration;
use lockkeeper_daemon::exit::{Exit, Failure};

use crate::output::Output;
use findings::{Verdict, findings, table};

/// How long the API server may take for all of it. Who asks waits at a terminal.
const PATIENCE: Duration = Duration::from_secs(60);

/// Prints what is found, good or not. A marked pod is tried in this namespace, without creating it.
///
/// # Errors
/// When something has to be mended, or could not be read, after all was printed; and when the API server does not answer.
pub(crate) async fn check(
    client: &Client,
    namespace: &str,
    output: Output,
    print: &mut impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let read = tokio::time::timeout(PATIENCE, read::installation(client, namespace));
    let installation = read.await.map_err(|_| {
        Failure::unavailable(format!(
            "the API server did not describe the installation within {}",
            duration::format(PATIENCE)
        ))
    })??;
    let found = findings(&installation);
    print(&output.text(&found, || table(&found))?)?;
    let count = |verdict| found.iter().filter(|one| one.verdict == verdict).count();
    match (count(Verdict::Problem), count(Verdict::Unknown)) {
        (0, 0) => Ok(()),
        (problems, unknown) => Err(Failure::new(
            Exit::Unavailable,
            format!(
                "{problems} of {} checks found a problem, and {unknown} could not be made",
                found.len()
            ),
        )),
    }
}
