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

/// Published operations of a process, of all sources: with the largest schemas they take 80 MB.
pub const PUBLISHED_OPERATIONS: usize = 5_000;

/// Bytes of the input schema of a published operation: it stands in every prompt that offers the operation.
pub const PUBLISHED_SCHEMA_BYTES: usize = 16 * 1024;

/// Levels of maps and lists of the input schema of a published operation: half of what a value from outside may have.
pub const PUBLISHED_SCHEMA_DEPTH: usize = 32;

/// Bytes of the description of a published operation inside a JSON text: it stands in every prompt that offers the
/// operation.
pub const PUBLISHED_DESCRIPTION_BYTES: usize = 4 * 1024;

/// Bytes of the version of a publication: each call of its operations records it.
pub const PUBLISHED_VERSION_BYTES: usize = 128;
