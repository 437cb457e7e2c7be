//! Limits of operations that are published while the process runs. Other servers may write all of them.

/// Bytes of the name of a source or of its operation: as many as a tool's name has characters.
pub const PUBLISHED_NAME_BYTES: usize = 64;

/// Operations of one publication: the largest servers offer a hundred tools.
pub const PUBLISHED_PER_SOURCE: usize = 256;

/// Sources that publish for one owner, or for all owners: each list of operations shows all of them.
pub const PUBLISHED_SOURCES: usize = 64;

/// Published operations of one owner, and of all owners: each list of operations shows all of them, and one owner must
/// not take the room of others.
pub const PUBLISHED_PER_OWNER: usize = 512;

/// Published operations of one owner with those of all its agents' own sources.
pub const PUBLISHED_OF_AGENTS: usize = 8 * PUBLISHED_PER_OWNER;

/// Bytes of the schemas and descriptions of one owner's sources with those of all its agents.
pub const PUBLISHED_AGENTS_BYTES: usize = 8 * PUBLISHED_OWNER_BYTES;

/// Bytes of the schemas and descriptions of one owner's sources, and of those of sources for all owners: the largest
/// servers have a fifth of it.
pub const PUBLISHED_OWNER_BYTES: usize = 512 * 1024;

/// Published operations of all owners in a process: 64 owners have all of theirs. Those of sources for all owners don't
/// count, so that they have room whatever owners publish.
pub const PUBLISHED_OPERATIONS: usize = 64 * PUBLISHED_PER_OWNER;

/// Bytes of the schemas and descriptions of all owners in a process. In memory a schema takes some times its text.
pub const PUBLISHED_BYTES: usize = 64 * PUBLISHED_OWNER_BYTES;

/// Bytes of the input schema of a published operation: it stands in every prompt that offers the operation.
pub const PUBLISHED_SCHEMA_BYTES: usize = 16 * 1024;

/// Levels of maps and lists of the input schema of a published operation: half of what a value from outside may have.
pub const PUBLISHED_SCHEMA_DEPTH: usize = 32;

/// Bytes of the description of a published operation inside a JSON text: it stands in every prompt that offers the
/// operation.
pub const PUBLISHED_DESCRIPTION_BYTES: usize = 4 * 1024;

/// Bytes of the version of a publication: each call of its operations records it.
pub const PUBLISHED_VERSION_BYTES: usize = 128;
