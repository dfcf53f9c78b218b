//! The lease duration in the notation of the API: `auto`, `off` or a duration.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::duration::{self, ApiDuration};

/// How long a contender may be silent before the next one takes its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApiLease {
    /// Only its session decides.
    Off,
    /// The shortest that leaves as much time for lost answers as the session alone.
    #[default]
    Auto,
    /// A length that the user chose.
    Of(ApiDuration),
}

/// A text that is none of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no lease duration: write auto, off, or a whole number and one unit of ms, s, m and h, such as 8s"
)]
pub struct InvalidLease(String);

impl FromStr for ApiLease {
    type Err = InvalidLease;

    fn from_str(text: &str) -> Result<Self, InvalidLease> {
        match text {
            "off" => Ok(Self::Off),
            "auto" => Ok(Self::Auto),
            text => text
                .parse()
                .map(Self::Of)
                .map_err(|_| InvalidLease(text.to_owned())),
        }
    }
}

impl fmt::Display for ApiLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Auto => f.write_str("auto"),
            Self::Of(lease) => lease.fmt(f),
        }
    }
}

impl Serialize for ApiLease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ApiLease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<str>::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for ApiLease {
    fn schema_name() -> Cow<'static, str> {
        "LeaseDuration".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        duration::schema()
    }
}
