//! The queues of all locks, as they stand in ZooKeeper, in memory.
//!
//! There is one session, one persistent recursive watch, and a full read after every connection: events between two
//! connections are lost. Each connection is a client of its own, so events of an old connection cannot be taken for
//! those of a new one.

mod backlog;
mod churn;
mod follow;
pub(crate) mod link;
mod listed_again;
pub(crate) mod mirror;
pub mod picture;
mod reads;
mod renewals;
mod under_way;
pub(crate) mod view;

pub use link::Link;
pub use mirror::Mirror;
pub(crate) use view::View;
