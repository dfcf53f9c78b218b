//! `AdmissionReview` of `admission.k8s.io/v1`, with the object as it came: what we do not know of it
//! must survive.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::kubernetes::names::{self, is_label};

const API_VERSION: &str = "admission.k8s.io/v1";

/// Longest identifier of a review, in bytes. API servers send a UUID, of 36.
const LONGEST_UID: usize = 64;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    request: Request,
}

/// What the API server asks.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub uid: String,
    pub kind: Kind,
    /// Namespace of the request; the object may leave it out.
    #[serde(default)]
    pub namespace: String,
    /// `CREATE` or `UPDATE`.
    pub operation: String,
    pub object: Value,
}

/// Group, version and kind.
#[derive(Clone, Debug, Deserialize)]
pub struct Kind {
    pub kind: String,
}

/// What is to be done with the object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    /// The object as it should be; `None` for as it is.
    pub object: Option<Value>,
    /// For the user.
    pub warnings: Vec<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: String,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Reads a review.
///
/// # Errors
/// When it is not a review, or of another version.
pub fn parse(body: &[u8]) -> Result<Request, String> {
    let review: Review = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not an AdmissionReview: {error}"))?;
    if review.api_version != API_VERSION {
        return Err(format!(
            "the review is of {}: send one of {API_VERSION}",
            names::beginning(&review.api_version, LONGEST_UID)
        ));
    }
    let request = review.request;
    if request.uid.len() > LONGEST_UID {
        return Err(format!(
            "the uid of the review has {} bytes: send one with {LONGEST_UID} at most",
            request.uid.len()
        ));
    }
    let of_object = &request.object["metadata"]["namespace"];
    if !request.namespace.is_empty() && !is_label(&request.namespace) {
        return Err("the namespace of the review is no name of a namespace".to_owned());
    }
    // The object may leave it out.
    if of_object
        .as_str()
        .is_some_and(|namespace| namespace != request.namespace)
    {
        return Err(
            "the review is of another namespace than its object: send both with the same one".to_owned(),
        );
    }
    Ok(request)
}

/// The answer to a request, as JSON: the decision, or the sentence for the user whose object is refused.
pub fn answer(request: &Request, decision: Result<Decision, String>) -> Vec<u8> {
    let uid = request.uid.clone();
    let response = match decision {
        Ok(decision) => {
            let patch = decision
                .object
                .map(|object| json_patch::diff(&request.object, &object));
            let patch = patch.filter(|patch| !patch.0.is_empty());
            let patch = patch.map(|patch| serde_json::to_vec(&patch).expect("a patch is JSON"));
            Response {
                uid,
                allowed: true,
                status: None,
                patch_type: patch.is_some().then_some("JSONPatch"),
                patch: patch.map(|patch| STANDARD.encode(patch)),
                warnings: decision.warnings,
            }
        }
        Err(sentence) => Response {
            uid,
            allowed: false,
            // 422, as the API server itself answers to an object that is not valid.
            status: Some(json!({ "code": 422, "reason": "Invalid", "message": sentence })),
            patch_type: None,
            patch: None,
            warnings: Vec::new(),
        },
    };
    let review = json!({ "apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response });
    serde_json::to_vec(&review).expect("a review is JSON")
}
