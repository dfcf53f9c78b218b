//! The table of removed rules: each safety rule of the lock, the guard, the keeper and admission is taken out of
//! the code in turn, and a test has to notice. A rule that nobody misses is not tested, or is none.
//!
//! The rules are data, `rules/list/*.yaml`: the sentence, the page that promises it, the text in the code that
//! keeps it and what takes its place, and the test that has to fail then.

pub mod cargo;
pub mod list;
pub mod page;
pub mod scratch;
pub mod table;
