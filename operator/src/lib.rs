//! The operator of Lockkeeper.
