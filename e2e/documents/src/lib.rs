//! Checks of the documentation against itself, the code and the programs.

#![warn(unreachable_pub)]

mod circles;
mod console;
mod content;
mod contrast;
mod drawing;
mod manifests;
mod map;
mod modules;
mod page;
mod pictures;
mod repository;
mod seen;
mod site;
mod uses;

pub use circles::circles;
pub use console::{Step, replay, steps};
pub use content::{Block, Table, blocks, tables};
pub use contrast::{Rgb, contrast};
pub use drawing::{Drawing, Form, Frame, Item, Paint, Point};
pub use manifests::{Yaml, yaml};
pub use map::{MAP, written};
pub use modules::{Crate, Module, crates};
pub use page::{Page, Shown};
pub use pictures::{PICTURES, Painted, SOURCES, painted};
pub use repository::{files, normal, read, root};
pub use site::{Faults, SUMMARY, Sources, faults, listed, on_site, write as write_site};
