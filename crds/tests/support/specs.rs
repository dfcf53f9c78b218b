//! Specs and the expected verdict: for the rules, the code, and a real API server.

use lockkeeper_crds::{DEFAULT_TICK_TIME, DistributedLockSpec};
use serde::Deserialize;
use serde_json::{Value, json};

/// A line of the table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The requested settings.
    pub spec: Value,
    /// Part of the error of rules and code.
    pub refused: Option<String>,
    /// Part of the error of the code, if it differs.
    pub code: Option<String>,
    /// Part of the error of the API server about a type, a limit or a list of values.
    pub schema: Option<String>,
}

pub fn cases() -> Vec<Case> {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("specs.yaml")).unwrap();
    assert!(cases.len() > 30);
    cases
}

/// `LOCKKEEPER_SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("LOCKKEEPER_SEED").map_or(1, |seed| seed.parse().expect("LOCKKEEPER_SEED is a number"))
}

/// The verdict of the code.
pub fn check_in_code(spec: &Value) -> Result<(), String> {
    serde_json::from_value::<DistributedLockSpec>(spec.clone())
        .map_err(|error| error.to_string())?
        .validate(DEFAULT_TICK_TIME.get())
        .map(|_| ())
        .map_err(|error| error.to_string())
}

/// Settings of which about half fit together, and most are close to the limit.
pub fn random_spec(random: &mut fastrand::Rng) -> Value {
    let timeout = random.u64(1_000..30_000);
    let tick = random.bool().then(|| random.u64(100..4_000));
    let renewal = random.bool().then(|| random.u64(50..timeout / 4 + 50));
    // The arithmetic a third time, roughly, to get close to the limit.
    let (r, k) = (renewal.unwrap_or(timeout / 8), tick.unwrap_or(2_000));
    let age = r * ((k / 2 + 200).div_ceil(r) + 200_u64.div_ceil(r) + 2);
    let limit = (timeout * 4 / 5).saturating_sub(age + timeout / 100 + 200);
    let grace = match random.u8(0..4) {
        0 => random.u64(0..timeout),
        _ => (limit + random.u64(0..6)).saturating_sub(3),
    };
    let mut spec = json!({
        "sessionTimeout": written(timeout, random),
        "stopGrace": written(grace, random),
        "maxHolders": if random.u8(0..8) == 0 { 2 } else { 1 },
        "mode": if random.u8(0..8) == 0 { "ReadWrite" } else { "Exclusive" },
    });
    match random.u8(0..6) {
        0 => spec["leaseDuration"] = "auto".into(),
        1 => spec["leaseDuration"] = "off".into(),
        2 | 3 => {
            // Close to its own limit: L / 8 + grace + L / 100 + 200 ms = 4 L / 5.
            let lease = (grace + 200) * 1_000 / 665;
            let lease = (lease + random.u64(0..6)).saturating_sub(3);
            spec["leaseDuration"] = written(lease, random);
        }
        _ => {}
    }
    if let Some(renewal) = renewal {
        spec["renewInterval"] = written(renewal, random);
    }
    if let Some(tick) = tick {
        spec["zookeeper"] = json!({ "connect": "zk", "tickTime": written(tick, random) });
    }
    spec
}

/// In milliseconds or, sometimes, rounded to seconds or with a mistake.
fn written(millis: u64, random: &mut fastrand::Rng) -> Value {
    match random.u8(0..40) {
        0 => format!("{millis}"),
        1 => format!("{millis}ms "),
        2 => format!("{}.5s", millis / 1_000),
        3..=5 => format!("{}s", millis / 1_000),
        _ => format!("{millis}ms"),
    }
    .into()
}
