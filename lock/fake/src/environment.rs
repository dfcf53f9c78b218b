//! Numbers for tests from the environment: which history to play, and how many.

/// The number in this environment variable; `None` without it.
///
/// # Panics
/// When it is no number.
pub fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} must be a number, not {text:?}")),
    )
}
