//! `docs/reference.md`: its text, with tables made from the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};

use crate::definition::crd;
use crate::lock::{ConditionType, Reason};

const TEXT: &str = include_str!("reference.md");

pub(crate) fn reference() -> String {
    TEXT.replace("{spec}", &table("spec"))
        .replace("{status}", &table("status"))
        .replace(
            "{conditions}",
            &meanings(
                ConditionType::ALL.iter().map(|c| (c.as_str(), c.meaning())),
                "* ",
                ":",
            ),
        )
        .replace(
            "{reasons}",
            &meanings(Reason::ALL.iter().map(|r| (r.as_str(), r.meaning())), "| ", " |"),
        )
}

fn meanings<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>, before: &str, between: &str) -> String {
    let end = if before.starts_with('|') { " |" } else { "" };
    let lines: Vec<_> = pairs
        .map(|(name, meaning)| format!("{before}`{name}`{between}{meaning}{end}"))
        .collect();
    lines.join("\n")
}

/// All fields below `part` of the resource.
fn table(part: &str) -> String {
    let crd = crd();
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .and_then(|schema| schema.open_api_v3_schema.as_ref()?.properties.as_ref()?.get(part));
    let mut lines = vec![
        "| field | type | meaning |".to_owned(),
        "|---|---|---|".to_owned(),
    ];
    if let Some(schema) = schema {
        rows("", schema, &mut lines);
    }
    lines.join("\n")
}

fn rows(path: &str, schema: &JSONSchemaProps, lines: &mut Vec<String>) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}{name}");
        let text = field
            .description
            .as_deref()
            .unwrap_or_default()
            .replace('|', "\\|");
        lines.push(format!(
            "| `{path}` | {} | {} |",
            kind(field),
            text.replace('\n', " ")
        ));
        rows(&format!("{path}."), field, lines);
        // Kubernetes documents the type of conditions.
        if let (Some(JSONSchemaPropsOrArray::Schema(items)), false) = (&field.items, name == "conditions") {
            rows(&format!("{path}[]."), items, lines);
        }
    }
}

fn kind(field: &JSONSchemaProps) -> String {
    let values: Vec<_> = field
        .enum_
        .iter()
        .flatten()
        .filter_map(|value| Some(format!("`{}`", value.0.as_str()?)))
        .collect();
    match (&values[..], field.type_.as_deref().unwrap_or_default()) {
        ([], "array") => "list".to_owned(),
        ([], kind) => kind.to_owned(),
        (values, _) => values.join(", "),
    }
}
