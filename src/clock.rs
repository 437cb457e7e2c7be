//! The clock: a struct with a function.
