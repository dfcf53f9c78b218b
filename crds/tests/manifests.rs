//! The generated files match the types, and the types explain everything to users.

use std::collections::BTreeSet;
use std::path::Path;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray,
};
use lockkeeper_crds::keys::{self, Access, Guard, Readiness};
use lockkeeper_crds::{ApiDuration, DistributedLock, DistributedLockSpec, definition, manifest};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

#[test]
fn the_generated_files_are_those_of_the_types() {
    for manifest in manifest::manifests() {
        let path = root().join(manifest.path);
        let there = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == manifest.content,
            "{} is out of date with crds/src: run `make crds`",
            manifest.path
        );
    }
}

/// Calls `visit` with the path and the schema of every field below.
fn fields(path: &str, schema: &JSONSchemaProps, visit: &mut impl FnMut(&str, &JSONSchemaProps)) {
    for (name, field) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        visit(&path, field);
        fields(&path, field, visit);
    }
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        fields(&format!("{path}[]"), items, visit);
    }
}

fn schema() -> JSONSchemaProps {
    let crd = definition::crd();
    let schema = crd.spec.versions[0].schema.clone().unwrap();
    schema.open_api_v3_schema.unwrap()
}

#[test]
fn kubectl_explains_every_field_and_its_default() {
    let mut count = 0;
    fields("", &schema(), &mut |path, field| {
        count += 1;
        let text = field.description.as_deref().unwrap_or_default();
        assert!(text.len() > 20, "{path} is not explained");
        if let Some(default) = &field.default {
            let written = default.0.as_str().map_or(default.0.to_string(), str::to_owned);
            assert!(
                text.contains(&format!("Default: `{written}`"))
                    || text.contains(&format!("Default: {written}.")),
                "{path} does not state its default {written}: {text}"
            );
        } else if path.starts_with(".spec.") && field.properties.is_none() && !path.ends_with(".name") {
            let tells = ["Default: ", "From 1 to"].iter().any(|hint| text.contains(hint));
            assert!(tells, "{path} does not state what holds without it: {text}");
        }
        for value in field.enum_.iter().flatten() {
            let value = value.0.as_str().unwrap();
            assert!(
                text.contains(&format!("`{value}`")),
                "{path} does not explain {value}"
            );
        }
        if field.max_length == Some(10) && path.starts_with(".spec") {
            assert!(
                text.contains("A duration, from `"),
                "{path} does not state its limits: {text}"
            );
        }
    });
    assert!(count > 30, "{count} fields");
}

#[test]
fn the_api_server_knows_every_format_and_finds_an_end_to_every_list() {
    fields("", &schema(), &mut |path, field| {
        if let Some(format) = &field.format {
            assert!(
                ["int32", "int64", "date-time"].contains(&format.as_str()),
                "{path}: {format}"
            );
        }
        assert!(
            field.type_.as_deref() != Some("array") || field.max_items.is_some(),
            "{path} has no end"
        );
        assert_eq!(field.nullable, None, "{path}");
    });
}

#[test]
fn the_reference_has_every_key_and_every_value() {
    let reference = std::fs::read_to_string(root().join("docs/reference.md")).unwrap();
    let guards = Guard::ALL.iter().map(|value| value.as_str());
    let readiness = Readiness::ALL.iter().map(|value| value.as_str());
    let access = Access::ALL.iter().map(|value| value.as_str());
    for row in [
        format!("| `{}` | name of a `DistributedLock`", keys::LOCK),
        format!("| `{}` | name of a container", keys::CONTAINER),
        format!("| `{}` | {} | `auto` |", keys::GUARD, listed(guards)),
        format!("| `{}` | {} | `auto` |", keys::READINESS, listed(readiness)),
        format!("| `{}` | {} | `write` |", keys::ACCESS, listed(access)),
    ] {
        assert!(reference.contains(&row), "{row}");
    }
    for key in keys::ALL {
        assert!(reference.contains(&format!("| `{key}` | ")), "{key}");
    }
    // A key that a user writes on a workload may be on its pods, too.
    let named: BTreeSet<_> = reference
        .split("| `lockkeeper.io/")
        .skip(1)
        .filter_map(|row| row.split('`').next())
        .map(|key| format!("lockkeeper.io/{key}"))
        .collect();
    let all = keys::ALL.into_iter().map(str::to_owned).collect();
    assert_eq!(named, all, "keys that do not exist, or are missing");
}

fn listed<'a>(values: impl Iterator<Item = &'a str>) -> String {
    let values: Vec<_> = values.map(|value| format!("`{value}`")).collect();
    values.join(", ")
}

#[test]
fn an_empty_spec_has_the_defaults_of_the_code() {
    let spec: DistributedLockSpec = serde_json::from_str("{}").unwrap();
    assert_eq!(spec, DistributedLockSpec::default());
    let written = serde_json::to_value(&spec).unwrap();
    fields(
        "",
        schema().properties.as_ref().unwrap().get("spec").unwrap(),
        &mut |path, field| {
            let name = path.trim_start_matches('.');
            if !name.contains('.') {
                let default = field.default.as_ref().map(|default| &default.0);
                assert_eq!(default, written.get(name), "{name}");
            }
        },
    );
}

#[test]
fn the_example_is_a_lock_with_settings_that_fit_together() {
    let example = std::fs::read_to_string(root().join("docs/examples/distributedlock.yaml")).unwrap();
    let lock: DistributedLock = serde_saphyr::from_str(&example).unwrap();
    lock.spec
        .validate(lockkeeper_crds::DEFAULT_TICK_TIME.get())
        .unwrap();
}

#[test]
fn durations_of_the_resource_are_durations_of_the_sidecar() {
    for text in [
        "0s",
        "007s",
        "1ms",
        "99999999ms",
        "99999s",
        "9999m",
        "99h",
        "1875ms",
        "90s",
    ] {
        let duration: ApiDuration = text.parse().unwrap();
        assert_eq!(
            lockkeeper_daemon::duration::parse(text),
            Ok(duration.get()),
            "{text}"
        );
        let written = duration.to_string();
        assert_eq!(
            lockkeeper_daemon::duration::parse(&written),
            Ok(duration.get()),
            "{written}"
        );
        assert_eq!(lockkeeper_daemon::duration::format(duration.get()), written);
        assert_eq!(written.parse(), Ok(duration), "{written}");
    }
    for text in [
        "",
        "0",
        "s",
        "15",
        "-5s",
        "+5s",
        "1.5s",
        "5 s",
        "5S",
        "1m30s",
        "2d",
        "100h",
        "123456789ms",
        "٣s",
    ] {
        let error = text.parse::<ApiDuration>().unwrap_err().to_string();
        assert!(
            error.contains(&format!("`{text}` is not a duration: write")),
            "{error}"
        );
    }
}
