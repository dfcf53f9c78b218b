//! The table of removed rules: this removes each safety rule of the lock, the guard, the keeper and admission
//! from the code in turn, and a test has to fail. If no test fails, the rule is not tested, or is not a rule.
//!
//! The rules are data, `e2e/rules/list/*.yaml`: the sentence, the page that promises it, the code that keeps
//! it, its replacement, and the test that has to fail then.

#![warn(unreachable_pub)]

pub mod cargo;
pub mod list;
pub mod page;
pub mod scratch;
pub mod table;
