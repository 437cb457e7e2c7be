//! Requests and replies of this format, as tables.

mod decode;
mod encode;
