//! Finds a few words in a stream of JSON of any length, and keeps nothing else of it.

/// Longest word that is kept, in bytes. The token by which a list goes on has a name in it, and some hundred bytes.
const LONGEST: usize = 4096;

/// Objects and lists around a word that is wanted, at most.
const DEEPEST: usize = 4;

/// Where a word is: the keys that lead to it, and an empty one for each list.
pub(crate) type Path = &'static [&'static str];

/// Reads JSON part by part.
#[derive(Debug)]
pub(crate) struct Skim {
    wanted: &'static [Path],
    found: Vec<Option<String>>,
    is_repeated: bool,
    /// Objects and lists that are open.
    depth: usize,
    /// The outermost of them.
    levels: [Level; DEEPEST],
    is_key: bool,
    state: State,
    /// As it is written, in quotes.
    word: Vec<u8>,
}

#[derive(Debug, Default)]
struct Level {
    is_object: bool,
    key: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Before,
    Between,
    Word,
    Escaped,
}

impl Skim {
    pub(crate) fn new(wanted: &'static [Path]) -> Self {
        Self {
            wanted,
            found: vec![None; wanted.len()],
            is_repeated: false,
            depth: 0,
            levels: Default::default(),
            is_key: false,
            state: State::Before,
            word: Vec::new(),
        }
    }

    /// Begins again, with the next document.
    pub(crate) fn reset(&mut self) {
        if self.state != State::Before {
            *self = Self::new(self.wanted);
        }
    }

    /// Reads the next part. The result for invalid JSON is not defined.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.step(*byte);
        }
    }

    /// The words in the order in which they were wanted, once all has been read. Nothing when it is not at its end, or
    /// when one was there more than once.
    pub(crate) fn found(&self) -> Option<&[Option<String>]> {
        let is_whole = self.state == State::Between && self.depth == 0;
        (is_whole && !self.is_repeated).then_some(&self.found)
    }

    fn step(&mut self, byte: u8) {
        match (self.state, byte) {
            (State::Escaped, _) => {
                self.keep(byte);
                self.state = State::Word;
            }
            (State::Word, _) => {
                self.keep(byte);
                match byte {
                    b'\\' => self.state = State::Escaped,
                    b'"' => {
                        self.state = State::Between;
                        self.end_word();
                    }
                    _ => {}
                }
            }
            (_, b'"') => {
                self.state = State::Word;
                self.word.clear();
                self.keep(byte);
            }
            (_, b'{' | b'[') => {
                self.state = State::Between;
                self.is_key = byte == b'{';
                if let Some(level) = self.levels.get_mut(self.depth) {
                    level.is_object = self.is_key;
                    level.key.clear();
                }
                self.depth += 1;
            }
            (_, b'}' | b']') => self.depth = self.depth.saturating_sub(1),
            (_, b',') => self.is_key = self.level().is_some_and(|level| level.is_object),
            (_, b':') => self.is_key = false,
            _ => {}
        }
    }

    /// The innermost object or list, where it may have what is wanted.
    fn level(&mut self) -> Option<&mut Level> {
        self.levels.get_mut(self.depth.checked_sub(1)?)
    }

    fn keep(&mut self, byte: u8) {
        if self.depth <= DEEPEST && self.word.len() <= LONGEST {
            self.word.push(byte);
        }
    }

    fn end_word(&mut self) {
        let word = std::mem::take(&mut self.word);
        let is_key = self.is_key;
        if self.depth <= DEEPEST && word.len() <= LONGEST {
            match self.level() {
                Some(level) if is_key => word[1..word.len() - 1].clone_into(&mut level.key),
                _ => self.end_value(&word),
            }
        } else if let Some(level) = self.level().filter(|_| is_key) {
            level.key.clear();
        }
        self.word = word;
    }

    fn end_value(&mut self, word: &[u8]) {
        let keys = &self.levels[..self.depth];
        let is_here = |path: &Path| {
            let mut pairs = path.iter().zip(keys);
            path.len() == keys.len() && pairs.all(|(wanted, level)| wanted.as_bytes() == level.key)
        };
        let Some(at) = self.wanted.iter().position(is_here) else {
            return;
        };
        self.is_repeated |= self.found[at].is_some();
        self.found[at] = serde_json::from_slice(word).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const WANTED: &[Path] = &[
        &["metadata", "name"],
        &["items", "", "metadata", "name"],
        &["metadata", "labels", "a"],
    ];

    fn skim(text: &str, part: usize) -> Option<Vec<Option<String>>> {
        let mut skim = Skim::new(WANTED);
        // What was before leaves nothing behind.
        skim.read(br#"{"metadata":{"name":"before"},"a":["\"#);
        skim.reset();
        text.as_bytes().chunks(part).for_each(|part| skim.read(part));
        skim.found().map(<[_]>::to_vec)
    }

    fn words<const N: usize>(words: [Option<&str>; N]) -> Option<Vec<Option<String>>> {
        Some(words.map(|word| word.map(str::to_owned)).into())
    }

    #[test]
    fn words_are_found_where_they_are_wanted_however_the_text_is_divided() {
        let text = json!({
            "a": [{"metadata": {"name": "no"}}, "metadata", {"name": "no"}, [[[[[["name"]]]]]], 1.5, null, true],
            "items": [{"kind": "x", "metadata": {"labels": {"name": "no"}, "name": "ä\"{[,:\\", "n": {"name": "no"}}}],
            "metadata": {"labels": {"metadata": "no", "\"a": "{", "a": ":"}, "name": "<yes>", "z": {}},
            "name": "no",
        });
        let found = words([Some("<yes>"), Some("ä\"{[,:\\"), Some(":")]);
        for text in [
            text.to_string(),
            format!("{text:#}\n"),
            text.to_string().replace('<', "\\u003c"),
        ] {
            for part in 1..20 {
                assert_eq!(skim(&text, part), found, "{part}");
            }
        }
        assert_eq!(skim("{}", 1), words([None, None, None]));
    }

    #[test]
    fn what_ends_too_early_or_names_two_objects_finds_nothing() {
        for text in ["", "{", r#"{"metadata":{"name":"a"}"#, r#"{"metadata":{"name":"#] {
            assert_eq!(skim(text, 100), None, "{text}");
        }
        let two = r#"{"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}"#;
        assert_eq!(skim(two, 100), None);
    }

    #[test]
    fn nothing_long_is_kept() {
        let long = "x".repeat(1 << 20);
        let text = json!({ long.as_str(): {"name": "no"}, "metadata": {"name": long, "labels": {"a": "b"}} });
        assert_eq!(skim(&text.to_string(), 1 << 10), words([None, None, Some("b")]));
        let mut skim = Skim::new(WANTED);
        skim.read(text.to_string().as_bytes());
        assert!(skim.word.capacity() <= 4 * LONGEST);
    }
}
