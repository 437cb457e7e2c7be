//! Trellis: an event-driven job worker that runs fleets of persistent AI agents from a queue.
//!
//! The modules stand in the order an event travels. `domain` decides and never sees a clock, a
//! socket or a backend; everything else is a thin shell around it.
//!
//! | stage | pure part | shell |
//! |---|---|---|
//! | 1 arrive, 2 admit | [`domain::event`] | [`ingress`], [`bus`], [`store`] |
//! | 3 lease | [`domain::turn`] | [`worker`] |
//! | 4 build context | [`domain::context`] | [`worker`] |
//! | 5 model call | [`domain::chat`] | [`model`] |
//! | 6 tool calls | [`domain::authority`], [`domain::lattice`], [`domain::resource`] | [`ops`], [`resources`], [`workspace`] |
//! | 7 commit | [`domain::turn`] | [`worker`], [`store`] |
//! | 8 outbound | [`domain::turn`] | [`outbox`], [`bus`] |

pub use trellis_domain as domain;

pub mod bus;
pub mod ingress;
pub mod model;
pub mod ops;
pub mod outbox;
pub mod policy;
pub mod quotas;
pub mod resources;
pub mod store;
pub mod worker;
pub mod workspace;

pub mod agents;
pub mod app;
pub mod approvals;
pub mod assets;
pub mod audit;
pub mod auth;
pub mod bench;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dead;
pub mod doctor;
pub mod external;
pub mod http;
pub mod invoked;
pub mod jobs;
pub mod ledger;
pub mod rates;
pub mod retention;
pub mod retry;
pub mod revoked;
pub mod secrets;
pub mod shutdown;
pub mod spending;
pub mod strays;
pub mod telemetry;
pub mod timers;
pub mod venue;
