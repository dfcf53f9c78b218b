//! The generated files: the CustomResourceDefinition as YAML, for `kubectl` and for Helm, and its reference.

use crate::definition::crd;
use crate::reference::reference;

/// First line of every generated file.
const NOTICE: &str = "# Generated from crds/src by `make crds`. Do not edit.\n";

/// Metadata that the chart adds. Helm must not delete the locks of a whole cluster together with a release.
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

/// A generated file, as it has to be in the repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Its path from the root of the repository.
    pub path: &'static str,
    /// Its whole text.
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
        Manifest {
            path: "docs/reference.md",
            content: reference(),
        },
    ]
}

/// For `kubectl apply --server-side`.
pub fn plain() -> String {
    let yaml = serde_saphyr::to_string(&crd()).expect("a CRD has names for keys and finite numbers");
    format!("{NOTICE}{yaml}")
}

/// For Helm: kept when the release is uninstalled, with labels and annotations from its values.
fn template(plain: &str) -> String {
    let (before, after) = plain.split_once("metadata:\n").expect("a CRD has metadata");
    // Everything else is text for Helm: braces in a description are no template.
    let after = after.replace("{{", "{{ \"{{\" }}");
    format!("{before}{TEMPLATE_METADATA}{after}")
}
