//! Trellis: an event-driven job worker that runs fleets of persistent AI agents from a queue.
//!
//! The modules stand in the order an event travels. `domain` decides and never sees a clock, a
//! socket or a backend; everything else is a thin shell around it.
//!
//! | stage | pure part | shell |
//! |---|---|---|
//! | 1 arrive, 2 admit | [`domain::event`] | [`bus`], [`ingress`], [`store`] |
//! | 3 lease | [`domain::turn`] | [`worker`] |
//! | 4 build context | [`domain::context`] | [`venue::context`] |
//! | 5 model call | [`domain::chat`] | [`model`] |
//! | 6 tool calls | [`domain::authority`], [`domain::lattice`], [`domain::resource`] | [`ops`], [`venue`] |
//! | 7 commit | [`domain::turn`] | [`worker`], [`store`] |
//! | 8 outbound | [`domain::turn`] | [`outbox`], [`bus`] |
//!
//! Which module may use which is a table in `tests/it/tidy/`: there is no circle.

pub use trellis_domain as domain;

pub mod bus;
pub mod ingress;
pub mod store;
pub mod worker;
pub mod model;
pub mod ops;
pub mod outbox;

pub mod venue;
pub mod upkeep;

pub mod http;
pub mod cli;
pub mod bench;

pub mod app;
pub mod config;
pub mod process;
