//! Limits of schemas that are projected.

use crate::limits::SCHEMA_BYTES;

/// Most bytes of a projected schema.
pub(super) const SENT_BYTES_MAX: usize = 4 * SCHEMA_BYTES;
/// Most references and parts of `allOf` inside one another for one value.
pub(super) const CHAIN_MAX: usize = 32;
/// Most bytes that reading a schema may copy; a schema that needs more is refused.
pub(super) const SPENT_LIMIT: usize = 2 * 1024 * 1024;
/// Most levels of alternatives inside alternatives.
pub(super) const DEPTH_MAX: usize = 16;
/// Most alternatives of one value in Gemini's subset, where those inside one another become one list.
pub(super) const UNION_MAX: usize = 96;
/// Most alternatives that are joined for one schema, counted each time.
pub(super) const JOINED_MAX: usize = 20_000;
