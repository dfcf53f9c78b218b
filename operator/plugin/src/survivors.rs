//! What outlives SIGKILL in a pod is given up: its keeper is told so, by its own program in its own container.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::Api;
use kube::api::AttachParams;
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
    let mut process = attached.map_err(|error| cannot_exec(pod, &error))?;
    let (output, errors) = (process.stdout(), process.stderr());
    let (output, errors) = tokio::join!(words(output), words(errors));
    let status = match process.take_status() {
        Some(status) => status.await,
        None => None,
    };
    told(pod, status.as_ref(), output, &errors)
}

/// What the end of the command means.
fn told(pod: &str, status: Option<&Status>, output: String, errors: &str) -> Result<String, Failure> {
    let unavailable =
        |why: &str| Failure::unavailable(format!("the keeper of {pod} could not be asked: {why}"));
    let status = status.ok_or_else(|| unavailable("the connection ended before the command did"))?;
    if status.status.as_deref() == Some("Success") {
        return Ok(format!("{output}\n"));
    }
    let refused = (Exit::Refused as u8).to_string();
    if exit_code(status).is_some_and(|code| code == refused) {
        let sentence = format!("the keeper of {pod} refuses: {errors}");
        return Err(Failure::new(Exit::Refused, sentence));
    }
    let message = status.message.as_deref().unwrap_or("it does not say why");
    Err(unavailable(if errors.is_empty() { message } else { errors }))
}

/// The code with which the command ended (`NonZeroExitCodeReason` of `k8s.io/apimachinery/pkg/util/remotecommand`); `None` if
/// it was not executed.
fn exit_code(status: &Status) -> Option<&str> {
    let causes = status.details.as_ref()?.causes.as_ref()?;
    let cause = causes
        .iter()
        .find(|cause| cause.reason.as_deref() == Some("ExitCode"))?;
    cause.message.as_deref()
}

/// Why the command could not be executed.
fn cannot_exec(pod: &str, error: &kube::Error) -> Failure {
    let missing_right = match error {
        kube::Error::Api(answer) if answer.code == 403 => {
            " (this needs `get` and `create` on pods/exec in the namespace of the pod)"
        }
        _ => "",
    };
    Failure::unavailable(format!(
        "cannot reach the keeper of {pod}{missing_right}: {error}"
    ))
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

    fn ended(status: &str, code: Option<&str>, message: &str) -> Status {
        let details =
            code.map(|code| serde_json::json!({"causes": [{"reason": "ExitCode", "message": code}]}));
        serde_json::from_value(serde_json::json!({"status": status, "message": message, "details": details}))
            .unwrap()
    }

    #[test]
    fn a_keeper_refuses_only_what_its_program_says_that_it_refuses() {
        let told = |status: Option<Status>, errors| told("p", status.as_ref(), "given up".to_owned(), errors);
        assert_eq!(told(Some(ended("Success", None, "")), "").unwrap(), "given up\n");
        let refused = told(
            Some(ended("Failure", Some("77"), "code 77")),
            "lockkeeper: nothing",
        )
        .unwrap_err();
        assert_eq!(
            (refused.exit, refused.sentence.as_str()),
            (Exit::Refused, "the keeper of p refuses: lockkeeper: nothing")
        );
        for (status, errors, why) in [
            (
                Some(ended("Failure", Some("69"), "code 69")),
                "no keeper answers",
                "no keeper answers",
            ),
            (
                Some(ended("Failure", None, "container not found")),
                "",
                "container not found",
            ),
            (None, "", "the connection ended before the command did"),
        ] {
            let failure = told(status, errors).unwrap_err();
            assert_eq!(failure.exit, Exit::Unavailable);
            assert_eq!(
                failure.sentence,
                format!("the keeper of p could not be asked: {why}")
            );
        }
    }

    #[tokio::test]
    async fn what_a_pod_answers_is_one_line_that_does_nothing_to_a_terminal_and_has_an_end() {
        let said = words(Some(&b"\x1b]0;owned\x07the lock\nis \xe2\x80\xaefree\n"[..])).await;
        assert_eq!(said, "\\u{1b}]0;owned\\u{7}the lock is \\u{202e}free");
        assert_eq!(words(None::<&[u8]>).await, "");
        let endless = tokio::io::repeat(b'a');
        assert_eq!(words(Some(endless)).await.len() as u64, LONGEST_ANSWER);
    }
}
