//! Durations in the notation of the API: `500ms`, `15s`, `2m`, `1h`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use lockkeeper_daemon::duration;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The text that the rules of the schema accept: a whole number and one unit, below a hundred hours. CEL, which counts
/// nanoseconds in 64 bits, can calculate with such durations.
pub(crate) const PATTERN: &str = "^([0-9]{1,8}ms|[0-9]{1,5}s|[0-9]{1,4}m|[0-9]{1,2}h)$";

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
    /// A span of whole milliseconds, the smallest unit of the API. No limits are checked.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A span of whole seconds. No limits are checked.
    pub const fn from_secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// The span as the standard library has it, always of whole milliseconds.
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
        let longest = match text.trim_start_matches(|c: char| c.is_ascii_digit()) {
            "ms" => "99999999ms",
            "s" => "99999s",
            "m" => "9999m",
            "h" => "99h",
            _ => "",
        };
        duration::parse(text)
            .ok()
            .filter(|_| text.len() <= longest.len())
            .map(Self)
            .ok_or_else(|| InvalidDuration(text.to_owned()))
    }
}

/// In the largest unit that gives a whole number.
impl fmt::Display for ApiDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::format(self.0))
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
