//! The CustomResourceDefinition as YAML, made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
};
use kube::CustomResourceExt;

use crate::lock::DistributedLock;

/// First line of every generated file.
const NOTICE: &str = "# Generated from crds/src by `make crds`. Do not edit.\n";

/// What the chart adds to the metadata. Helm must not delete the locks of a whole cluster with a release.
const TEMPLATE_METADATA: &str = "\
metadata:
  annotations:
    helm.sh/resource-policy: keep
    {{- with .Values.annotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  labels:
    app.kubernetes.io/name: lockkeeper-crds
    app.kubernetes.io/part-of: lockkeeper
    app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
    helm.sh/chart: {{ printf \"%s-%s\" .Chart.Name .Chart.Version }}
    {{- with .Values.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
";

/// A generated file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Where it lies, from the root of the repository.
    pub path: &'static str,
    /// What is in it.
    pub content: String,
}

/// All generated files of the repository.
pub fn manifests() -> Vec<Manifest> {
    let plain = plain();
    vec![
        Manifest {
            path: "charts/lockkeeper-crds/templates/distributedlock.yaml",
            content: template(&plain),
        },
        Manifest {
            path: "crds/distributedlock.yaml",
            content: plain,
        },
    ]
}

/// For `kubectl apply --server-side`.
pub fn plain() -> String {
    let yaml = serde_saphyr::to_string(&crd()).expect("a CRD has names for keys and finite numbers");
    format!("{NOTICE}{yaml}")
}

/// The definition of `DistributedLock`.
///
/// Without `nullable`, which schemars gives to every optional field: a null is refused as any other value of
/// a wrong type, and never stored for others to stumble over. With every paragraph on one line: `kubectl
/// explain` keeps the line breaks that it finds.
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

/// For Helm: kept when the release goes, with labels and annotations from its values.
fn template(plain: &str) -> String {
    let (before, after) = plain.split_once("metadata:\n").expect("a CRD has metadata");
    // Everything else is text to Helm: nothing in a description is taken for a template.
    let after = after.replace("{{", "{{ \"{{\" }}");
    format!("{before}{TEMPLATE_METADATA}{after}")
}
