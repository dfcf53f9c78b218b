//! Checks of the documentation against itself, the code and the programs.

#![warn(unreachable_pub)]

mod circles;
mod content;
mod manifests;
mod map;
mod modules;
mod page;
mod repository;
mod uses;

pub use circles::circles;
pub use content::{Block, Table, blocks, tables};
pub use manifests::{Yaml, yaml};
pub use map::{MAP, written};
pub use modules::{Crate, Module, crates};
pub use page::Page;
pub use repository::{files, normal, read, root};
