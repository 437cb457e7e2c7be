//! Lattice: paths, the values under them, and their layout in documents.

pub mod catalog;
pub mod layout;
pub mod address;
pub mod path;
pub mod value;

pub use path::{Namespace, OutputPathError, Path, PathError, PathRule};
