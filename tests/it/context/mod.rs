//! The context of turns: entries, prompts, ledger, resources, the tree of values.

mod attachments;
mod byte_trails;
mod continuation;
mod entries_and_loads;
mod experiments;
mod ledger;
mod ledger_bytes;
mod prompts;
mod recorded_reads;
mod resources;
mod scopes;
mod split_entries;
mod values;
mod workspace;
