//! The pure state machines of keeper and guard, for a simulation of the whole. They are not public in the released
//! binary: see the feature `simulation`.

pub use crate::guard::schedule::{Action, Actions, Event, Mode, Schedule, Sight, Sweep};
pub use crate::keeper::decider::{Act, Ask, Decider, Ending};
pub use crate::keeper::policy::{Kind, Policy};
