//! The functional core: values in, decisions out. No `async`, I/O, clock, environment or randomness.

pub mod decode;
pub mod nearest;
pub mod time;
pub mod visible;

pub mod hosts;
pub mod ids;
pub mod lattice;

pub mod values;

pub mod authority;
pub mod epoch;
pub mod event;
pub mod message;
pub mod seal;
pub mod job;
pub mod lineage;
pub mod principal;
pub mod priority;
pub mod reader;
pub mod token;

pub mod agent;
pub mod approval;
pub mod asset;
pub mod budget;
pub mod canonical;
pub mod cap;
pub mod dead;
pub mod expiry;
pub mod external;
pub mod gate;
pub mod goal;
pub mod invoked;
pub mod options;
pub mod outputs;
pub mod resource;
pub mod session;
pub mod spend;
pub mod timer;

pub mod chat;
pub mod context;

pub mod secret;
pub mod tools;

pub mod audit;
pub mod limits;
pub mod patch;
pub mod quota;
pub mod rate;
pub mod render;
pub mod retention;
pub mod schema;
pub mod scope;
pub mod turn;
