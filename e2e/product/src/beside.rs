//! Operators as processes beside a real API server and a real ensemble, under exactly the rights that the
//! chart gives them. So tests can reach everything around them, and break it.

pub mod account;
pub mod conditions;
mod environment;
mod operator;
mod tenant;

pub use environment::Environment;
pub use operator::{Launch, Operator, Pages};
pub use tenant::{BUSY, Tenant};

/// How the operator identifies itself to the ensemble, as user and password of ZooKeeper's scheme `digest`.
pub const IDENTITY: &str = "operator:secret";
