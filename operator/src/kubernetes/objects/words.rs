//! Reads words, lists and maps of which only the beginning, the count or a few entries are kept.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// What is kept of a word that may be long, in bytes: one more than a name has (DNS subdomain, RFC 1123), so that
/// a longer one is that of nothing.
pub(crate) const LONGEST_WORD: usize = 254;

/// The beginning of a word that may be long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Word(pub(crate) String);

impl<'de> Deserialize<'de> for Word {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Cut;
        impl Visitor<'_> for Cut {
            type Value = Word;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E>(self, word: &str) -> Result<Word, E> {
                Ok(Word(word[..word.floor_char_boundary(LONGEST_WORD)].to_owned()))
            }
        }
        deserializer.deserialize_str(Cut)
    }
}

impl From<Word> for String {
    fn from(Word(word): Word) -> Self {
        word
    }
}

/// Reads a list, or nothing, one element after the other.
pub(super) fn each<'de, D, T, A>(deserializer: D, add: impl FnMut(&mut A, T)) -> Result<A, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    A: Default,
{
    struct Each<T, A, F>(F, PhantomData<(T, A)>);
    impl<'de, T: Deserialize<'de>, A: Default, F: FnMut(&mut A, T)> Visitor<'de> for Each<T, A, F> {
        type Value = A;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_unit<E>(self) -> Result<A, E> {
            Ok(A::default())
        }

        fn visit_seq<S: SeqAccess<'de>>(mut self, mut list: S) -> Result<A, S::Error> {
            let mut all = A::default();
            while let Some(element) = list.next_element()? {
                (self.0)(&mut all, element);
            }
            Ok(all)
        }
    }
    deserializer.deserialize_any(Each(add, PhantomData))
}

/// Reads these entries of a map, or of nothing.
pub(super) fn few<'de, D, V>(
    deserializer: D,
    wanted: &'static [&'static str],
) -> Result<Option<BTreeMap<String, V>>, D::Error>
where
    D: Deserializer<'de>,
    V: Deserialize<'de>,
{
    struct Few<V>(&'static [&'static str], PhantomData<V>);
    impl<'de, V: Deserialize<'de>> Visitor<'de> for Few<V> {
        type Value = Option<BTreeMap<String, V>>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
            let mut found = BTreeMap::new();
            while let Some(Word(key)) = map.next_key()? {
                if self.0.contains(&key.as_str()) {
                    found.insert(key, map.next_value()?);
                } else {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            Ok(Some(found))
        }
    }
    deserializer.deserialize_any(Few(wanted, PhantomData))
}
