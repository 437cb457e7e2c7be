//! Agent records and their configuration.
