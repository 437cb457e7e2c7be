//! Agents by the Agent2Agent protocol 1.0.1: `/a2a/{tenant}/{user}/{agent}`, in the bindings JSON-RPC and HTTP+JSON.
//!
//! A thin layer above [`crate::venue::a2a`]: it reads requests and writes answers and errors in the forms of the
//! protocol. Callers and their authority are those of the API.

mod adapt;
mod caller;
pub(super) mod card;
mod error;
mod media;
mod operations;
pub(super) mod rest;
pub(super) mod rpc;
mod send;
mod stream;

pub(super) use adapt::adapt_errors;
