//! Requests and replies of this format, as tables.

mod encode;
mod decode;
