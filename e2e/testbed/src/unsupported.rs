//! What this machine cannot do, and the tests that are skipped for it.

/// Something that this machine does not support, and the reason. A test that needs it prints the reason and
/// is skipped.
#[derive(Clone, Debug)]
pub struct Unsupported(String);

impl Unsupported {
    /// `reason` is the rest of a sentence that begins with "SKIPPED: ".
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// What was tried; `None` if this machine does not support it: then the test is skipped.
    ///
    /// # Panics
    /// When it failed for another reason.
    #[track_caller]
    pub fn or_skip<T>(tried: anyhow::Result<T>) -> Option<T> {
        match tried {
            Ok(tried) => Some(tried),
            Err(error) => match error.downcast_ref::<Self>() {
                Some(reason) => {
                    lockkeeper_skip::skip(reason);
                    None
                }
                None => panic!("{error:#}"),
            },
        }
    }
}

impl std::fmt::Display for Unsupported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}
