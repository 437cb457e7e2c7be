//! Caches of what the store holds, so that a turn reads only what has changed.

pub(crate) mod prompt_records;
pub(crate) mod records;
pub(crate) mod sessions;
