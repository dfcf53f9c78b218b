//! The secret in the page's address. Other users of this machine reach 127.0.0.1 as well, and so does any page in the
//! user's browser.

use std::fmt;

use crate::exit::Failure;

/// Bytes of chance in a key: as many as a UUID has, which nobody guesses.
const BYTES: usize = 16;

/// A secret of one run, in hexadecimal digits.
#[derive(Clone)]
pub(super) struct Key(String);

impl Key {
    /// # Errors
    /// When the system gives no random numbers.
    pub(super) fn new() -> Result<Self, Failure> {
        let mut bytes = [0; BYTES];
        getrandom::fill(&mut bytes)
            .map_err(|error| Failure::software(format!("the system gives no random numbers: {error}")))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Whether a query (`key=…`) has it. The time that this takes tells nothing of the place of the first wrong digit.
    pub(super) fn is_in(&self, query: Option<&str>) -> bool {
        let parts = query.unwrap_or_default().split('&');
        let mut given = parts.filter_map(|part| part.strip_prefix("key="));
        given.next().is_some_and(|given| {
            let differ = given
                .bytes()
                .zip(self.0.bytes())
                .fold(0, |sum, (a, b)| sum | (a ^ b));
            given.len() == self.0.len() && differ == 0
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_key_opens_the_page_and_each_run_has_another_one() {
        let key = Key::new().unwrap();
        let (text, other) = (key.to_string(), Key::new().unwrap());
        assert_eq!(text.len(), 2 * BYTES);
        assert!(key.is_in(Some(&format!("key={text}"))));
        assert!(key.is_in(Some(&format!("a=b&key={text}"))));
        for wrong in [
            None,
            Some(String::new()),
            Some("key=".to_owned()),
            Some(format!("key={other}")),
            Some(format!("key={}", &text[1..])),
            Some(format!("key={text}0")),
            Some(format!("kez={text}")),
        ] {
            assert!(!key.is_in(wrong.as_deref()), "{wrong:?}");
        }
    }
}
