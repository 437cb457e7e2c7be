//! Logins at servers of the Model Context Protocol: a person's, which a command begins and ends, and the venue's own.
//!
//! ```text
//! trellis mcp login ─▶ discover ─▶ client ─▶ begin ─▶ (a person opens the URL) ─▶ finish ─▶ the stored login
//! a call ─▶ the stored login, renewed where it is due ─▶ 401 or 403 ─▶ a new token, or `run trellis mcp login`
//! ```
//!
//! All requests leave by the senders of the venue, under its rules for other hosts.

mod begin;
mod client_choice;
mod client_key;
mod detached;
mod discover;
mod finish;
mod keeper;
mod machine;
mod peer_login;
mod place;
mod renew;
mod token_request;

pub(crate) use begin::{LoginStart, begin_login};
pub(crate) use client_choice::VenueClient;
pub(crate) use finish::{LoginAnswer, finish_login};
pub(crate) use keeper::{delete_login, load_login};
pub(crate) use peer_login::PeerLogin;
pub use place::ClientKey;
pub(crate) use place::{LoginPlace, LoginTools, sealed_login_name};
