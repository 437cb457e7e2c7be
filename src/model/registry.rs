//! Which model a request goes to.
