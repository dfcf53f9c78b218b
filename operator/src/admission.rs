//! All about the admission of pods: how they are put behind their locks, and what has to be known for that.
//!
//! [`webhook`] answers the API server's reviews, [`inject`] changes the pod (pure), [`image`] asks registries for the
//! commands of images, and [`certificates`] authenticates the webhooks to the API server.

pub(crate) mod app_token;
pub(crate) mod args;
pub mod asker;
pub(crate) mod cache;
pub mod callers;
pub mod certificates;
pub mod image;
pub mod inject;
pub(crate) mod run;
pub(crate) mod shared_places;
pub mod webhook;
