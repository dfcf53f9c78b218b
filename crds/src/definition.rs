//! The CustomResourceDefinition of `DistributedLock`, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use crate::lock::DistributedLock;

/// The definition of `DistributedLock`.
///
/// It has no `nullable`, which schemars gives to every optional field: the API server refuses a null like any other
/// value of a wrong type, so stored objects contain no null. Every paragraph is on one line, because `kubectl explain`
/// keeps line breaks.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = DistributedLock::crd();
    for version in &mut crd.spec.versions {
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        {
            tidy(schema);
        }
    }
    crd
}

fn tidy(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    if let Some(text) = &mut schema.description {
        *text = text
            .split("\n\n")
            .map(|paragraph| paragraph.replace('\n', " "))
            .collect::<Vec<_>>()
            .join("\n\n");
    }
    for property in schema
        .properties
        .iter_mut()
        .flat_map(|properties| properties.values_mut())
    {
        tidy(property);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &mut schema.items {
        tidy(items);
    }
}
