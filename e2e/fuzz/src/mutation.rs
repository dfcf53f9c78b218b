//! Random changes of good and bad inputs, from one seed.

use fastrand::Rng;

/// Bytes at boundaries: signs, digits, brackets, ends of text.
const EDGES: &[u8] = b"\0\x01\x7f\x80\xff\n\r\t \"'\\/:;,.-+=?#%&@*[]{}()<>09azAZ";

/// Numbers at boundaries.
const NUMBERS: [&str; 14] = [
    "0",
    "-1",
    "1",
    "00",
    "127",
    "255",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "4294967296",
    "9223372036854775808",
    "18446744073709551616",
    "1e999",
];

/// Most changes of one input.
const CHANGES: usize = 8;

/// Makes inputs.
#[derive(Debug)]
pub struct Mutator {
    random: Rng,
}

impl Mutator {
    /// Makes the same inputs again for the same seed.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Rng::with_seed(seed),
        }
    }

    /// One of the inputs, changed in up to eight places; of `longest` bytes at most.
    pub fn next(&mut self, inputs: &[Vec<u8>], words: &[&str], longest: usize) -> Vec<u8> {
        let mut input = self.random.choice(inputs).cloned().unwrap_or_default();
        for _ in 0..self.random.usize(1..=CHANGES) {
            self.change(&mut input, inputs, words);
            input.truncate(longest);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, inputs: &[Vec<u8>], words: &[&str]) {
        let at = self.random.usize(..=input.len());
        let length = self.random.usize(..=16).min(input.len() - at);
        match self.random.u8(..9) {
            0 if at < input.len() => input[at] ^= 1 << self.random.u8(..8),
            1 if at < input.len() => input[at] = EDGES[self.random.usize(..EDGES.len())],
            2 => drop(input.drain(at..at + length)),
            3 => input.truncate(at),
            4 => {
                let bytes: Vec<_> = (0..self.random.usize(1..=8))
                    .map(|_| self.random.u8(..))
                    .collect();
                insert(input, at, &bytes);
            }
            // Repeats a part, several times.
            5 => {
                let times = 1 << self.random.u32(..9);
                let again = input[at..at + length].repeat(times);
                insert(input, at, &again);
            }
            6 => {
                let word = self.random.choice(words).copied().unwrap_or("");
                insert(input, at, word.as_bytes());
            }
            7 => {
                let from = input[at..]
                    .iter()
                    .position(u8::is_ascii_digit)
                    .map_or(at, |by| at + by);
                let digits = input[from..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                input.drain(from..from + digits);
                insert(
                    input,
                    from,
                    NUMBERS[self.random.usize(..NUMBERS.len())].as_bytes(),
                );
            }
            // The end of another one.
            _ => {
                let other = self.random.choice(inputs).map_or(&[][..], Vec::as_slice);
                let from = self.random.usize(..=other.len());
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

fn insert(input: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    input.splice(at..at, bytes.iter().copied());
}
