//! Trellis: an event-driven job worker that runs fleets of persistent AI agents from a queue.
//!
//! The modules are in the order in which an event passes them. `domain` makes the decisions and uses no clock, socket or
//! backend; the other modules are a thin shell around it.
//!
//! | stage | pure part | shell |
//! |---|---|---|
//! | 1 arrive, 2 admit | [`domain::event`] | [`bus`], [`venue::ingress`], [`store`] |
//! | 3 lease | [`domain::lease`] | [`store`], [`worker`] |
//! | 4 build context | [`domain::context`] | [`venue::context`] |
//! | 5 model call | [`domain::chat`] | [`model`] |
//! | 6 tool calls | [`domain::authority`], [`domain::lattice`], [`domain::resource`] | [`ops`], [`venue`] |
//! | 7 commit | [`domain::turn`] | [`worker`], [`store`] |
//! | 8 outbound | [`domain::turn`] | [`venue::outbox`], [`bus`] |
//!
//! | beside the stages | |
//! |---|---|
//! | [`view`] | the answers of the API, one type each |
//! | [`http`], [`cli`], [`bench`](mod@bench) | the API, the command line, measurements |
//! | [`app`] | makes the parts of a process; it alone names concrete backends |
//! | [`config`], [`process`] | settings; clock, log, retries, metrics and shutdown of a process |
//!
//! Which module may use which is a table in `tests/it/tidy/arrows.rs`: there is no circle. The files that a
//! change touches are named in `src/guide/development.md`.
//!
//! # Words, one meaning each
//!
//! | word | meaning |
//! |---|---|
//! | owner | [`Owner`](domain::ids::Owner), `tenant/user`: the unit of storage, of atomicity and of authority |
//! | agent | a durable record under an owner: what it may do, its state, its sessions |
//! | session | [`SessionKey`](domain::ids::SessionKey): one conversation of an agent; one turn of it runs at a time, fleet-wide |
//! | task, message, result | the events that come in, [`Event`](domain::event::Event): a request with a job behind it, a notification, the end of an outbound job |
//! | job | [`Job`](domain::job::Job): the handle of a task or of an outbound call |
//! | mandate | [`Mandate`](domain::event::Mandate): the request that a turn serves, with its caller and its authority |
//! | envelope | [`Envelope`](domain::authority::envelope::Envelope): what travels with a request: grants, deadline, lineage |
//! | authority, capability | [`Authority`](domain::authority::Authority) made of [`Capability`](domain::authority::Capability): an ability on a path; both only narrow |
//! | mailbox | a session's pending events in order, [`MailboxEntry`](store::MailboxEntry) |
//! | lease | [`Lease`](store::Lease): the exclusive, expiring right to run a session, with a growing epoch that fences |
//! | turn | [`Turn`](domain::turn::Turn): one context, one model call, the calls it asked for, one commit |
//! | run | [`SessionRun`](domain::turn::run::SessionRun): the turns from waking to sleeping |
//! | section | one labelled piece of a context |
//! | ledger | the record of each section: its content, its source, and why it was cut: [`Manifest`](domain::context::record::manifest::Manifest) |
//! | commit | [`Commit`](store::Commit): the one atomic write of a turn |
//! | outbox | messages that a commit decided, not yet published: [`OutboxEntry`](store::OutboxEntry) |
//! | venue | [`Venue`](venue::Venue): one store, one queue, one catalog, and everything kept there |
//! | operation | [`Operation`](venue::operation::Operation): what agents and callers can do, by catalog path |
//! | publication | [`Publication`](venue::operation::Publication): operations that one source adds while the process runs |
//! | view | a type of [`view`]: one answer of the API |
//! | tool | an operation, resource or harness function as a model sees it |
//! | budget, cap, quota | what a request may spend; what an owner may spend in a day; what an owner may keep |
//! | dead letter | [`DeadLetter`](domain::dead::DeadLetter): a task that killed too many workers |

pub use trellis_domain as domain;
pub use trellis_platform::{bus, config, process, store};

pub mod worker;
pub mod model;
pub mod ops;

pub mod venue;

pub mod view;
pub mod http;
pub mod cli;
pub mod bench;

pub mod app;
