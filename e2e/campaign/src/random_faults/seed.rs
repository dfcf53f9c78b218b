//! The seed of all random choices, which the user can give again.

use fastrand::Rng;

/// The environment variable that repeats all choices.
pub const SEED_VARIABLE: &str = "LOCKKEEPER_SEED";

/// The seed that the user gives in [`SEED_VARIABLE`], or a new one. The printed plan names the seed.
///
/// # Panics
/// When the variable is not a whole number: a test that ignored such a value would mislead.
pub fn seed_from_environment() -> u64 {
    match std::env::var(SEED_VARIABLE) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{SEED_VARIABLE} must be a whole number below 2^64, not \"{text}\"")),
        Err(_) => Rng::new().u64(..),
    }
}
