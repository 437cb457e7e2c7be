//! Why operations can't be published: the rules that a source breaks, and the room that there is.

use crate::domain::decode::DataError;
use crate::domain::foreign::one_line;
use crate::domain::lattice::catalog::{CatalogNameError, SourceName};
use crate::domain::limits::{
    PUBLISHED_BYTES, PUBLISHED_OPERATIONS, PUBLISHED_OWNER_BYTES, PUBLISHED_PER_OWNER, PUBLISHED_PER_SOURCE,
    PUBLISHED_SCHEMA_BYTES, PUBLISHED_SOURCES, PUBLISHED_VERSION_BYTES,
};
use crate::domain::schema::SchemaError;
use crate::domain::visible::quote_foreign;
use crate::domain::wire::schema::ProjectionError;

/// Why a publication is refused: nothing of it is published.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationError {
    /// Compiled operations have the source's name as their group.
    #[error("source `{group}` is a group of compiled operations, expected another name")]
    CompiledGroup {
        /// Name of the source.
        group: SourceName,
    },
    /// The version is empty or too long.
    #[error("source `{group}`: expected a version of 1 to {PUBLISHED_VERSION_BYTES} bytes, got {bytes}")]
    Version {
        /// Name of the source.
        group: SourceName,
        /// Bytes of the version.
        bytes: usize,
    },
    /// The publication has too many operations.
    #[error("source `{group}`: expected at most {PUBLISHED_PER_SOURCE} operations, got {found}")]
    TooManyOperations {
        /// Name of the source.
        group: SourceName,
        /// Number of its operations.
        found: usize,
    },
    /// The owner has too many sources.
    #[error("source `{group}`: expected at most {PUBLISHED_SOURCES} sources of one owner")]
    TooManySources {
        /// Name of the source.
        group: SourceName,
    },
    /// The owner's sources together would have too many operations.
    #[error("source `{group}`: expected at most {PUBLISHED_PER_OWNER} operations of one owner, got {found}")]
    OwnerFull {
        /// Name of the source.
        group: SourceName,
        /// Number of operations of the owner with these.
        found: usize,
    },
    /// The schemas and descriptions of the owner's sources together would be too large.
    #[error(
        "source `{group}`: expected at most {PUBLISHED_OWNER_BYTES} bytes of schemas and descriptions of one owner, got \
         {found}; publish fewer operations, or withdraw another source"
    )]
    OwnerBytes {
        /// Name of the source.
        group: SourceName,
        /// Bytes of the owner's operations with these.
        found: usize,
    },
    /// The sources of all owners together would have too many operations.
    #[error(
        "source `{group}`: expected at most {PUBLISHED_OPERATIONS} operations of all owners, got {found}; publish fewer, \
         or try again when another source is withdrawn"
    )]
    Full {
        /// Name of the source.
        group: SourceName,
        /// Number of operations of all owners with these.
        found: usize,
    },
    /// The schemas and descriptions of all owners together would be too large.
    #[error(
        "source `{group}`: expected at most {PUBLISHED_BYTES} bytes of schemas and descriptions of all owners, got \
         {found}; publish fewer operations, or try again when another source is withdrawn"
    )]
    FullBytes {
        /// Name of the source.
        group: SourceName,
        /// Bytes of the operations of all owners with these.
        found: usize,
    },
    /// An operation breaks a rule.
    #[error("operation `{}` of source `{group}`: {rule}", quote_foreign(.operation))]
    Operation {
        /// Name of the source.
        group: SourceName,
        /// Name of the operation as it was given.
        operation: String,
        /// The rule that it breaks.
        rule: PublicationRule,
    },
}

/// The rule that a published operation breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PublicationRule {
    /// The name can't stand in a path.
    #[error(transparent)]
    Name(#[from] CatalogNameError),
    /// Another operation of the publication, or a compiled one, gives its tool the same name.
    #[error("expected another name, the tool `{tool}` is that of another operation")]
    TakenTool {
        /// Name of the tool.
        tool: String,
    },
    /// An operation of another source, which the same calls may name, gives its tool the same name.
    #[error(
        "the tool `{tool}` is that of `{other}`; give the operation another name, or publish its source under another one"
    )]
    ToolOfSource {
        /// Name of the tool.
        tool: String,
        /// Path of the other operation.
        other: String,
    },
    /// The schema is too deep.
    #[error("input schema: {}", one_line(&.0.to_string()))]
    SchemaDepth(#[from] DataError),
    /// The schema is too large.
    #[error("input schema: expected at most {PUBLISHED_SCHEMA_BYTES} bytes, got {bytes}")]
    SchemaBytes {
        /// Bytes of the schema as JSON.
        bytes: usize,
    },
    /// The value is no schema.
    #[error("input schema: {}", one_line(&.0.to_string()))]
    Schema(#[from] SchemaError),
    /// Model providers don't take the schema.
    #[error("input schema: {}", one_line(&.0.to_string()))]
    Projection(#[from] ProjectionError),
}
