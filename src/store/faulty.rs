//! A store that fails on purpose.
