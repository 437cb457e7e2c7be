//! Calls of models: provider code, fallback, replies, real servers.

mod aimock;
mod endless_replies;
mod fallback;
mod provider;
mod proxy;
mod real_model;
mod strict_servers;
