//! Resources of the sidecar of a workload, as users write them. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Deserialize;

/// Kinds of resources that it may request.
const KINDS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Longest value, in bytes: enough for all kinds, with amounts far above those of any node.
const MAX_TEXT: usize = 512;

/// Requests and limits, each by its kind, with amounts in the notation of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SidecarResources {
    /// What is reserved for the sidecar, by kind of resource.
    #[serde(default)]
    pub requests: BTreeMap<String, String>,
    /// The most that the sidecar may use, by kind of resource.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
}

impl SidecarResources {
    /// A valid value, for messages that say what to write.
    pub const EXAMPLE: &str =
        r#"{"requests":{"cpu":"50m","memory":"32Mi"},"limits":{"cpu":"500m","memory":"64Mi"}}"#;
}

/// The error is the reason.
impl FromStr for SidecarResources {
    type Err = String;

    fn from_str(json: &str) -> Result<Self, String> {
        if json.len() > MAX_TEXT {
            return Err(format!("it has more than {MAX_TEXT} bytes"));
        }
        let read: Self = serde_json::from_str(json).map_err(|error| error.to_string())?;
        for (kind, text) in read.requests.iter().chain(&read.limits) {
            if !KINDS.contains(&kind.as_str()) {
                return Err(format!("`{kind}` is not one of {}", KINDS.join(", ")));
            }
            if amount(text).is_none() {
                return Err(format!("`{text}` is not an amount of {kind}"));
            }
        }
        for (kind, limit) in &read.limits {
            if let Some(request) = read.requests.get(kind)
                && amount(request) > amount(limit)
            {
                return Err(format!(
                    "the request for {kind}, {request}, is above its limit, {limit}"
                ));
            }
        }
        Ok(read)
    }
}

/// An amount, to be compared with others: `100m`, `64Mi`, `0.5`, `1e3`. `None` if it is not an amount, or negative.
pub fn amount(text: &str) -> Option<f64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    let number: f64 = number.parse().ok()?;
    let scale = match suffix {
        "" => 1.0,
        "n" => 1e-9,
        "u" => 1e-6,
        "m" => 1e-3,
        "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        "P" => 1e15,
        "E" => 1e18,
        "Ki" => 1024.0,
        "Mi" => 1024_f64.powi(2),
        "Gi" => 1024_f64.powi(3),
        "Ti" => 1024_f64.powi(4),
        "Pi" => 1024_f64.powi(5),
        "Ei" => 1024_f64.powi(6),
        exponent => {
            let exponent: i8 = exponent.strip_prefix(['e', 'E'])?.parse().ok()?;
            10_f64.powi(exponent.into())
        }
    };
    Some(number * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_whatever_their_unit() {
        let in_order = [
            "10m", "0.1", "100.5m", "1", "1e3", "64M", "64Mi", "1Gi", "1Ti", "1E",
        ];
        for pair in in_order.windows(2) {
            assert!(amount(pair[0]).unwrap() < amount(pair[1]).unwrap(), "{pair:?}");
        }
        assert_eq!(amount("1024Ki"), amount("1Mi"));
        for none in [
            "", "m", "-1", "1.2.3", "1 Gi", "1Qi", "inf", "NaN", "e3", "1e", "1e999",
        ] {
            assert_eq!(amount(none), None, "{none}");
        }
    }

    #[test]
    fn resources_that_no_container_could_have_are_refused_with_the_reason() {
        let example: SidecarResources = SidecarResources::EXAMPLE.parse().unwrap();
        assert_eq!(example.requests["memory"], "32Mi");
        let long = format!(r#"{{"limits":{{"cpu":"{}"}}}}"#, "1".repeat(MAX_TEXT));
        for (json, part) in [
            ("64Mi", "expected"),
            (r#"{"limit":{}}"#, "unknown field `limit`"),
            (r#"{"limits":{"cpu":1}}"#, "expected a string"),
            (
                r#"{"limits":{"pods":"1"}}"#,
                "`pods` is not one of cpu, memory, ephemeral-storage",
            ),
            (r#"{"limits":{"cpu":"much"}}"#, "`much` is not an amount of cpu"),
            (
                r#"{"requests":{"cpu":"1"},"limits":{"cpu":"500m"}}"#,
                "the request for cpu, 1, is above its limit, 500m",
            ),
            (&long, "more than 512 bytes"),
        ] {
            let problem = json.parse::<SidecarResources>().unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
