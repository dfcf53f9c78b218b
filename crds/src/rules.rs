//! The rules for the values of a lock, twice: for the API server, and in code. A test holds both equal
//! (`crds/tests/validation.rs`).

pub(crate) mod cel;
#[cfg(feature = "validation")]
pub(crate) mod in_code;
