//! The HTTP API and its clients.

mod connection_limits;
mod covia;
mod covia_client;
mod decode;
mod event_streams;
mod fuzz;
mod generated_clients;
mod jobs;
mod large_requests;
mod lists;
mod operations;
mod recorded_answers;
mod refusals;
mod requests;
