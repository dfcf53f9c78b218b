//! The sidecar: the guard starts and stops the application by deadline, the keeper holds the lock.
pub mod guard;
mod sys;
