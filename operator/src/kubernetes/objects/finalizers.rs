//! The finalizers of a lock: ours is added and removed, and of others only the number counts.

use json_patch::{AddOperation, Patch as JsonPatch, PatchOperation, RemoveOperation};
use kube::Client;
use kube::api::{ListParams, Patch};
use kube::core::{Request, Resource};
use lockkeeper_crds::DistributedLock;
use lockkeeper_crds::keys::FINALIZER;
use serde::{Deserialize, Deserializer};
use serde_json::json;

use super::words::{Word, each};

#[derive(Debug, Default)]
pub(crate) struct Finalizers {
    pub(crate) count: usize,
    /// Which of them is ours.
    pub(crate) ours: Option<usize>,
}

impl Finalizers {
    /// Those of a lock, as they are at this moment; `None` when it is gone. It is listed by its name: the right to list
    /// locks is there.
    ///
    /// # Errors
    /// Those of the API server.
    pub(crate) async fn of(
        client: &Client,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Self>, kube::Error> {
        let request = Request::new(DistributedLock::url_path(&(), Some(namespace)));
        let one = ListParams::default()
            .fields(&format!("metadata.name={name}"))
            .limit(1);
        let request = request.list_metadata(&one).map_err(kube::Error::BuildRequest)?;
        Ok(client.request::<List>(request).await?.only())
    }

    /// The patch that adds or removes ours; `None` if nothing is to be done. It depends on the version of the object,
    /// since it refers to positions in the list.
    pub(crate) fn patch(&self, is_wanted: bool, version: Option<String>) -> Option<Patch<()>> {
        let path = |path: &str| path.parse().expect("a pointer");
        let add = |at: &str, value| {
            let path = path(at);
            PatchOperation::Add(AddOperation { path, value })
        };
        let change = match (is_wanted, self.ours) {
            (true, Some(_)) | (false, None) => return None,
            (true, None) if self.count == 0 => add("/metadata/finalizers", json!([FINALIZER])),
            (true, None) => add("/metadata/finalizers/-", FINALIZER.into()),
            (false, Some(at)) => PatchOperation::Remove(RemoveOperation {
                path: path(&format!("/metadata/finalizers/{at}")),
            }),
        };
        let seen = add("/metadata/resourceVersion", version.into());
        Some(Patch::Json(JsonPatch(vec![seen, change])))
    }
}

/// The lock of a name, as the API server lists it: one object or none.
#[derive(Deserialize)]
struct List {
    /// The API server says `null`, and not `[]`, when it lists the metadata of no object.
    items: Option<Vec<Object>>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default, deserialize_with = "positions")]
    finalizers: Finalizers,
}

impl List {
    fn only(self) -> Option<Finalizers> {
        self.items?.pop().map(|object| object.metadata.finalizers)
    }
}

/// Reads `finalizers`.
pub(super) fn positions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Finalizers, D::Error> {
    each(deserializer, |found: &mut Finalizers, name: Word| {
        if name.0 == FINALIZER {
            found.ours = Some(found.count);
        }
        found.count += 1;
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    use serde_json::Value;

    /// What becomes of these finalizers.
    fn patched(before: &Value, is_wanted: bool) -> Option<Value> {
        let found = positions(before.clone()).unwrap();
        let Some(Patch::Json::<()>(patch)) = found.patch(is_wanted, Some("7".into())) else {
            return None;
        };
        let mut object = json!({ "metadata": { "resourceVersion": "6", "finalizers": before } });
        json_patch::patch(&mut object, &patch).unwrap();
        assert_eq!(
            object["metadata"]["resourceVersion"], "7",
            "the version is a condition"
        );
        Some(object["metadata"]["finalizers"].clone())
    }

    #[test]
    fn a_lock_that_is_gone_has_no_finalizers_however_an_empty_list_is_written() {
        for items in ["null", "[]"] {
            let list = format!(
                r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"2089"}},"items":{items}}}"#
            );
            let list: List = serde_json::from_str(&list).unwrap();
            assert!(list.only().is_none(), "{items}");
        }
        let one = format!(r#"{{"items":[{{"metadata":{{"finalizers":["a","{FINALIZER}"]}}}}]}}"#);
        let found = serde_json::from_str::<List>(&one).unwrap().only().unwrap();
        assert_eq!((found.count, found.ours), (2, Some(1)));
    }

    #[test]
    fn our_finalizer_comes_and_goes_and_those_of_others_stay_as_they_are() {
        for (before, after) in [
            (json!(null), json!([FINALIZER])),
            (json!([]), json!([FINALIZER])),
            (json!(["a/b", "c/d"]), json!(["a/b", "c/d", FINALIZER])),
        ] {
            assert_eq!(patched(&before, true), Some(after), "{before}");
            assert_eq!(patched(&before, false), None, "{before}");
        }
        for (before, after) in [
            (json!([FINALIZER]), json!([])),
            (json!(["a/b", FINALIZER, "c/d"]), json!(["a/b", "c/d"])),
        ] {
            assert_eq!(patched(&before, false), Some(after), "{before}");
            assert_eq!(patched(&before, true), None, "{before}");
        }
    }
}
