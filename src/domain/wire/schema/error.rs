//! Errors of schemas that a subset has no equivalent for.

use super::limits::{CHAIN_MAX, DEPTH_MAX, JOINED_MAX, SENT_BYTES_MAX, SPENT_LIMIT};
use crate::decode::DataError;
use crate::limits::SCHEMA_BYTES;
use serde_json::Value;

/// A schema that can't be projected to a subset, with the place of its part that has no equivalent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at `{place}`: {fault}")]
pub struct ProjectionError {
    /// JSON pointer into the schema behind `#`, such as `#/properties/a`; for a target of references the reference.
    pub place: String,
    /// The reason at this place.
    pub fault: ProjectionFault,
}

/// Reason why a part of a schema can't be projected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProjectionFault {
    /// The schema breaks a limit of all data.
    #[error("{0}")]
    Data(Box<DataError>),
    /// The given schema is too large.
    #[error("the schema has {bytes} bytes, expected at most {SCHEMA_BYTES}")]
    TooLarge {
        /// Size of the schema as JSON, in bytes.
        bytes: usize,
    },
    /// The projected schema is too large.
    #[error("with its references written out it has {bytes} bytes, expected at most {SENT_BYTES_MAX}")]
    TooLargeProjected {
        /// Size of the projected schema as JSON, in bytes.
        bytes: usize,
    },
    /// No map fits the schema, and arguments are always one.
    #[error("arguments are a map, expected a schema that a map fits{}", describe_kinds(.kinds.as_deref()))]
    NoMap {
        /// Value of the keyword `type`, if the schema has it.
        kinds: Option<Box<Value>>,
    },
    /// Reading the schema would copy too much.
    #[error("its references multiply to more than {} bytes", SPENT_LIMIT)]
    TooCostly,
    /// A reference leads out of the schema.
    #[error("the reference `{reference}` can't be followed, expected one into the same schema")]
    ForeignReference {
        /// The reference as given.
        reference: String,
    },
    /// A reference leads to no part of the schema.
    #[error("the reference `{reference}` leads to nothing")]
    MissingTarget {
        /// The reference as given.
        reference: String,
    },
    /// Too many references and parts of `allOf` are inside one another.
    #[error("more than {} schemas of one value: does a reference lead back to itself?", CHAIN_MAX)]
    LongChain,
    /// Lists of alternatives for one value multiply.
    #[error("its alternatives multiply to more than {}", JOINED_MAX)]
    ManyAlternatives,
    /// Too many alternatives are inside one another.
    #[error("more than {} alternatives inside one another", DEPTH_MAX)]
    NestedAlternatives,
}

impl ProjectionFault {
    /// Makes the error of this reason at a place.
    pub(super) fn into_error(self, place: &str) -> ProjectionError {
        ProjectionError { place: place.to_owned(), fault: self }
    }
}

fn describe_kinds(kinds: Option<&Value>) -> String {
    kinds.map_or_else(String::new, |kinds| format!(", got `\"type\": {kinds}`"))
}
