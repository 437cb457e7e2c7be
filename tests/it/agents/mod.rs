//! Agents: configuration, life, goals, children, failures.

mod argument_bindings;
mod chains;
mod children;
mod configuration_layers;
mod deletion;
mod documented_rules;
mod examples;
mod failure_table;
mod goals;
mod harness_tools;
mod lifecycle;
mod seed_files;
mod unknown_names;
