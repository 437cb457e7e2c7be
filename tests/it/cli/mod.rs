//! The command line.

mod dead_letters;
mod demo;
mod empty_variables;
mod errors;
mod escapes;
mod fleet;
mod json;
mod model_try;
mod agents_and_sessions;
mod no_store;
mod policy;
mod up;
mod wrong_input;
