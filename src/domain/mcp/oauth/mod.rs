//! Logins at servers of the Model Context Protocol, by OAuth 2.1: what servers say of a login, what is asked for, and what
//! is kept of it.
//!
//! ```text
//! 401 + WWW-Authenticate ─▶ metadata of the server ─▶ metadata of its login server ─▶ client ─▶ code ─▶ tokens
//! ```
//!
//! | file | what it decides |
//! |---|---|
//! | [`settings`] | which settings of a login are legal |
//! | [`challenge`] | what a refusal wants |
//! | [`location`] | where metadata is, and which URLs may be used |
//! | [`metadata`] | which metadata can be used |
//! | [`scope`] | which scopes are asked for |
//! | [`client`] | who the client is, and how it shows that |
//! | [`request`] | the URL that a person opens, and the forms |
//! | [`token`] | which tokens can be used, and for how long |
//! | [`record`] | what is stored of a login |

pub mod challenge;
pub mod client;
pub mod location;
pub mod metadata;
pub mod record;
pub mod request;
pub mod scope;
pub mod settings;
pub mod token;
