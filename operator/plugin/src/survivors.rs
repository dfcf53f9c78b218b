//! What outlives SIGKILL in a pod is given up: its keeper is told so, by its own program in its own container.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, AttachedProcess};
use lockkeeper_crds::keys;
use lockkeeper_daemon::exit::{Exit, Failure};
use tokio::io::{AsyncRead, AsyncReadExt};

use lockkeeper_daemon::table::plain;

/// The command in the keeper's container.
const COMMAND: [&str; 3] = ["/lockkeeper", "release", "--abandon-survivors"];

/// More of an answer is not read, in bytes: ours has a sentence.
const LONGEST_ANSWER: u64 = 4096;

/// How long all of that may take: the author of the pod decides what answers there.
const PATIENCE: Duration = Duration::from_secs(30);

/// Gives up what outlives SIGKILL in a pod, and tells what its keeper answers.
///
/// # Errors
/// What its keeper objects to, and what stands in the way to it.
pub(crate) async fn abandon(pods: &Api<Pod>, pod: &str) -> Result<String, Failure> {
    match tokio::time::timeout(PATIENCE, ask(pods, pod)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::unavailable(format!(
            "the keeper of {pod} did not answer within {PATIENCE:?}"
        ))),
    }
}

async fn ask(pods: &Api<Pod>, pod: &str) -> Result<String, Failure> {
    let params = AttachParams::default().container(keys::SIDECAR);
    let attached = pods.exec(pod, COMMAND, &params).await;
    let mut process = attached.map_err(|error| {
        Failure::unavailable(format!(
            "cannot reach the keeper of {pod} (it takes the right to exec): {error}"
        ))
    })?;
    let (output, errors) = (process.stdout(), process.stderr());
    let (output, errors) = tokio::join!(words(output), words(errors));
    match ended(process).await {
        Some(true) => Ok(format!("{output}\n")),
        Some(false) => Err(Failure::new(
            Exit::Refused,
            format!("the keeper of {pod} refuses: {errors}"),
        )),
        None => Err(Failure::unavailable(format!(
            "the keeper of {pod} did not answer: {errors}"
        ))),
    }
}

/// Whether it succeeded; `None` if that is not known.
async fn ended(mut process: AttachedProcess) -> Option<bool> {
    let status = process.take_status()?.await?;
    status.status.map(|status| status == "Success")
}

/// What it writes, on one line.
async fn words(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = Vec::new();
    if let Some(stream) = stream {
        // What was read before an error is all that there is.
        let _ = stream.take(LONGEST_ANSWER).read_to_end(&mut text).await;
    }
    let text = String::from_utf8_lossy(&text);
    // The author of the pod decides what it writes, and the terminal is the user's.
    plain(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_pod_answers_is_one_line_that_does_nothing_to_a_terminal_and_has_an_end() {
        let said = words(Some(&b"\x1b]0;owned\x07the lock\nis \xe2\x80\xaefree\n"[..])).await;
        assert_eq!(said, "\\u{1b}]0;owned\\u{7}the lock is \\u{202e}free");
        assert_eq!(words(None::<&[u8]>).await, "");
        let endless = tokio::io::repeat(b'a');
        assert_eq!(words(Some(endless)).await.len() as u64, LONGEST_ANSWER);
    }
}
