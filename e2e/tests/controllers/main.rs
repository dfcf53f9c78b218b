//! The operator as a process, with a real API server and a real ensemble, under exactly the rights that
//! the chart gives it.

mod agreeing;
mod browsing;
mod churn;
mod contender;
mod deleting;
mod ensembles;
mod environment;
mod fencing;
mod following;
mod gate;
mod guarded;
mod handing_over;
mod history;
mod killed;
mod life;
mod losing;
mod machine;
mod other_ensembles;
mod outages;
mod replicas;
mod rotating;
mod seat;
mod secured;
mod taking_over;
mod unfollowed;
mod unreadable;
