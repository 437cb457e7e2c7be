//! The functional core: values in, decisions out. No `async`, I/O, clock, environment or randomness.
//!
//! The modules are in the order words, records, rules: each uses those above it and none below. A test
//! (`tests/it/tidy/arrows.rs`) finds circles.

// Text, times, names.
pub mod limits;
pub mod bounds;
pub mod visible;
pub mod lines;
pub mod named_list;
pub mod nearest;
pub mod time;
pub mod trace;
pub mod decode;
pub mod digits;
pub mod unknown_fields;
pub mod format;
pub mod ids;
pub mod wait;
pub mod identity;
pub mod hosts;
pub mod headers;
pub mod bytes;
pub mod canonical;
pub mod render;
pub mod foreign;
pub mod media;
pub mod schema;
pub mod outputs;
pub mod generation;
pub mod losses;
pub mod origin;
pub mod lineage;
pub mod priority;
pub mod consent;
pub mod expiry;
pub mod gate;
pub mod tenant_users;
pub mod quota;

// The lattice and its values.
pub mod lattice;
pub mod patch;
pub mod load;
pub mod values;

// Models, their costs, and secrets.
pub mod chat;
pub mod wire;
pub mod rate;
pub mod shard;
pub mod share;
pub mod secret;
pub mod budget;
pub mod charge;
pub mod spend;
pub mod cap;
pub mod worker_registry;

// Servers of other people.
pub mod mcp;
pub mod a2a;

// Authority and identity.
pub mod authority;
pub mod principal;
pub mod token;

// Records of the store.
pub mod scope;
pub mod resource;
pub mod declared;
pub mod pipeline;
pub mod agent;
pub mod asset;
pub mod notification;
pub mod message;
pub mod job;
pub mod venue_mac;
pub mod protection;
pub mod journal;
pub mod audit;
pub mod event;
pub mod external;
pub mod call;
pub mod invocation;
pub mod webhook;
pub mod seal;
pub mod dead;
pub mod outcome;
pub mod lease;
pub mod timer;
pub mod goal;
pub mod approval;
pub mod percent;
pub mod place_pin;
pub mod prefix;
pub mod pipeline_run;
pub mod session;
pub mod reader;

// Rules over these records.
pub mod tools;
pub mod context;
pub mod retention;
pub mod turn;
