//! Durations in the notation of the API: `500ms`, `15s`, `2m`, `1h`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text that the rules of the schema accept: a whole number and one unit, below a hundred hours. CEL, which counts
/// nanoseconds in 64 bits, can calculate with such durations.
pub const PATTERN: &str = "^([0-9]{1,8}ms|[0-9]{1,5}s|[0-9]{1,4}m|[0-9]{1,2}h)$";

/// Longest text that [`PATTERN`] matches, in characters. The API server estimates the cost of a rule from it.
const MAX_LENGTH: usize = 10;

/// The rules of [`crate::cel`] can calculate with a text of this length.
pub(crate) fn schema() -> Schema {
    json_schema!({ "type": "string", "maxLength": MAX_LENGTH })
}

/// A time span in a notation that flags of `lockkeeper` and CEL's `duration()` accept too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApiDuration(Duration);

/// A text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration: write a whole number and one unit of ms, s, m and h, below a hundred hours, \
     such as 15s or 500ms"
)]
pub struct InvalidDuration(String);

impl ApiDuration {
    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// The span itself.
    pub const fn get(self) -> Duration {
        self.0
    }
}

impl From<ApiDuration> for Duration {
    fn from(duration: ApiDuration) -> Self {
        duration.0
    }
}

/// Rounds down to whole milliseconds: the API has no smaller unit.
impl From<Duration> for ApiDuration {
    fn from(duration: Duration) -> Self {
        Self(Duration::from_millis(
            u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        ))
    }
}

impl FromStr for ApiDuration {
    type Err = InvalidDuration;

    fn from_str(text: &str) -> Result<Self, InvalidDuration> {
        let units = [
            ("ms", 1, 8),
            ("s", 1_000, 5),
            ("m", 60_000, 4),
            ("h", 3_600_000, 2),
        ];
        let unit_at = text
            .bytes()
            .position(|b| !b.is_ascii_digit())
            .unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        units
            .iter()
            .find(|(name, _, digits)| *name == unit && number.len() <= *digits)
            .and_then(|(_, millis, _)| Some(Self::from_millis(number.parse::<u64>().ok()? * millis)))
            .ok_or_else(|| InvalidDuration(text.to_owned()))
    }
}

/// In the largest unit that gives a whole number.
impl fmt::Display for ApiDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_millis() {
            0 => f.write_str("0s"),
            millis if millis.is_multiple_of(3_600_000) => write!(f, "{}h", millis / 3_600_000),
            millis if millis.is_multiple_of(60_000) => write!(f, "{}m", millis / 60_000),
            millis if millis.is_multiple_of(1_000) => write!(f, "{}s", millis / 1_000),
            millis => write!(f, "{millis}ms"),
        }
    }
}

impl Serialize for ApiDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ApiDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ApiDuration {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schema()
    }
}
