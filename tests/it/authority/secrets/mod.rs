//! Secrets: the rules one by one, and a planted one that must turn up nowhere.

mod cli;
mod leaks;
mod echo_server;
mod rotation;
mod rules;
