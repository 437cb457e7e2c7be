//! Rules for servers of the Model Context Protocol whose tools agents use: settings, names, messages, and the comparison
//! of what a server offers with what was approved.
//!
//! | file | what it decides |
//! |---|---|
//! | [`server`] | which settings of a server are legal |
//! | [`name`] | path and name of each tool |
//! | [`revision`] | which revision is spoken, and when the other one is tried |
//! | [`oauth`] | how a login goes: what servers say of it, what is asked for, what is kept |
//! | [`message`] | the requests, and which message answers one |
//! | [`stream`] | where a message of a stream ends |
//! | [`definition`] | which definitions of tools can be used |
//! | [`header`] | arguments that go into headers |
//! | [`pin`] | the approved definitions, and what has changed |
//! | [`result`](mod@result) | what the caller gets of an answer |
//! | [`input`] | what a server asks a person in a call |
//! | [`task`] | what a call that goes on has come to |
//! | [`pending`] | the next step of such a call |

pub mod definition;
pub mod header;
pub mod input;
pub mod message;
pub mod name;
pub mod oauth;
pub mod pending;
pub mod pin;
pub mod result;
pub mod revision;
pub mod server;
pub mod stream;
pub mod task;
