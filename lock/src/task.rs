//! The loop that serves a lock: it sends requests, takes answers, and publishes the state through a `watch`.
//!
//! It is level-triggered. A few fields keep the present state (connection, contender, contenders ahead). [`Task::drive`]
//! looks at them after every answer and starts each request that is missing. When a connection is lost, all its
//! requests are forgotten, and `drive` sends them again over the next one: recovery has no second code path.

mod answer;
mod barred;
mod command;
mod enter;
mod haste;
mod hold;
mod link;
mod participants;
mod past;
mod place;
mod predecessor;
mod publish;
mod release;
mod requests;
mod run;
mod seen;
mod state;
mod strangers;
mod takeover;
mod turn;
mod unanswered;

pub(crate) use command::{Command, Word};
#[cfg(feature = "fuzzing")]
pub use requests::membership::read as ensemble_id;
pub(crate) use state::Task;
