//! What Trellis stands on: configuration, the process with its clock and log, the stores and the buses. It decides
//! nothing about agents.
//!
//! It is a crate of its own so that its code is made while that of the rest is still read.

pub use trellis_domain as domain;

pub mod bus;
pub mod config;
pub mod process;
pub mod store;
