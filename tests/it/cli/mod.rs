//! The command line.

mod dead;
mod demo;
mod errors;
mod escapes;
mod fleet;
mod json;
mod life;
mod no_store;
mod policy;
mod up;
mod words;
