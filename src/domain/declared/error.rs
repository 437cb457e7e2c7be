//! Rules that the declaration of a tool breaks.

use super::status::StatusRule;
use super::template::TemplateRule;
use super::url::UrlTemplateRule;
use crate::decode::DataError;
use crate::foreign::one_line;
use crate::limits::{
    DECLARED_BYTES, DECLARED_HEADERS, DECLARED_QUERY, OPERATION_TIME, PUBLISHED_NAME_BYTES, PUBLISHED_SCHEMA_BYTES,
    QUEUE_NAME_BYTES,
};
use crate::schema::SchemaError;
use crate::secret::SecretReferenceError;
use crate::visible::quote_foreign;
use crate::wire::schema::ProjectionError;

/// Rule that a declaration breaks; the text begins with the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclarationError {
    /// The name can't be a tool's name.
    #[error("`name`: expected 1 to {PUBLISHED_NAME_BYTES} of `[A-Za-z0-9_-]`, got `{}`", quote_foreign(.name))]
    Name {
        /// Name as it was given.
        name: String,
    },
    /// The description is missing.
    #[error("`description`: a declared tool needs one")]
    Description,
    /// The declaration says not what the tool does, or twice.
    #[error("expected one of `http` and `jobs`, got {found}")]
    Target {
        /// Number of them, in words.
        found: &'static str,
    },
    /// A schema is too deep.
    #[error("`{key}`: {}", one_line(&.error.to_string()))]
    SchemaDepth {
        /// Key of the schema.
        key: &'static str,
        /// The rule with its place.
        error: DataError,
    },
    /// A schema is too large.
    #[error("`{key}`: expected at most {PUBLISHED_SCHEMA_BYTES} bytes, got {bytes}")]
    SchemaBytes {
        /// Key of the schema.
        key: &'static str,
        /// Bytes of the schema.
        bytes: usize,
    },
    /// The declaration is too large.
    #[error("expected a declaration of at most {DECLARED_BYTES} bytes, got {bytes}")]
    Bytes {
        /// Bytes of the declaration.
        bytes: usize,
    },
    /// A value is no schema.
    #[error("`{key}`: {}", one_line(&.error.to_string()))]
    Schema {
        /// Key of the schema.
        key: &'static str,
        /// The rule that it breaks.
        error: SchemaError,
    },
    /// Model providers don't take the schema.
    #[error("`input`: {}", one_line(&.0.to_string()))]
    Projection(Box<ProjectionError>),
    /// The URL is illegal.
    #[error("`http.url`: {0}")]
    Url(UrlTemplateRule),
    /// A text with arguments is malformed.
    #[error("`{place}`: {rule}")]
    Template {
        /// Place of the text.
        place: String,
        /// The rule that it breaks.
        rule: TemplateRule,
    },
    /// An argument is in no schema.
    #[error("`{place}`: the argument `{}` is none of `input.properties`{hint}", quote_foreign(.name))]
    UnknownArgument {
        /// Place of the text with the argument.
        place: &'static str,
        /// Name of the argument.
        name: String,
        /// The nearest known name, as a text.
        hint: String,
    },
    /// An argument of the URL may be absent.
    #[error("`http.url`: the argument `{}` must be one of `input.required`", quote_foreign(.name))]
    OptionalArgument {
        /// Name of the argument.
        name: String,
    },
    /// An argument is sent nowhere.
    #[error("`input.properties`: the argument `{}` is used nowhere in `http`", quote_foreign(.name))]
    UnusedArgument {
        /// Name of the argument.
        name: String,
    },
    /// There are too many parameters of the query.
    #[error("`http.query`: expected at most {DECLARED_QUERY} parameters, got {found}")]
    Query {
        /// Number of the parameters.
        found: usize,
    },
    /// A parameter of the query is a map, or a list in a list.
    #[error("`http.query.{}`: expected a text, a number, a boolean or a list of them", quote_foreign(.name))]
    QueryValue {
        /// Name of the parameter.
        name: String,
    },
    /// There are too many headers.
    #[error("`http.headers`: expected at most {DECLARED_HEADERS} headers, got {found}")]
    Headers {
        /// Number of the headers.
        found: usize,
    },
    /// A header is illegal.
    #[error("`http.headers.{}`: {rule}", quote_foreign(.name))]
    Header {
        /// Name of the header.
        name: String,
        /// The rule that it breaks.
        rule: DeclaredHeaderRule,
    },
    /// The method has no body.
    #[error("`http.body`: GET has none")]
    BodyOfGet,
    /// The body has a reference to a secret.
    #[error("`http.body`: secrets are sent in `headers`")]
    SecretInBody,
    /// The body doesn't fit its content type.
    #[error("`http.body`: {0}")]
    BodyForm(&'static str),
    /// The content type belongs to no body, or is no header.
    #[error("`http.contentType`: {0}")]
    ContentType(&'static str),
    /// The method changes something, and the effect says that it doesn't.
    #[error("`http.effect`: {method} changes something, expected `repeatable` or `once`")]
    Effect {
        /// Name of the method.
        method: &'static str,
    },
    /// The time is out of range.
    #[error("`http.timeout`: expected 1 to {} milliseconds, got {found}", OPERATION_TIME.as_millis())]
    Timeout {
        /// Time in milliseconds.
        found: u64,
    },
    /// The place of the result is no JSON pointer.
    #[error("`http.result`: expected a JSON pointer such as `/data/order`, got `{}`", quote_foreign(.found))]
    Pointer {
        /// Text as it was given.
        found: String,
    },
    /// The meaning of a status is illegal.
    #[error("`http.status`: {0}")]
    Status(StatusRule),
    /// The name of the queue is too long.
    #[error("`jobs.queue`: expected at most {QUEUE_NAME_BYTES} bytes, got {bytes}")]
    QueueName {
        /// Bytes of the name.
        bytes: usize,
    },
    /// A number of a job is out of range.
    #[error("`jobs.{key}`: expected 1 to {most}, got {found}")]
    JobNumber {
        /// Key of the number.
        key: &'static str,
        /// The largest legal number.
        most: u64,
        /// Number as it was given.
        found: u64,
    },
}

/// Rule that a header of a declaration breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeclaredHeaderRule {
    /// The name has characters that no header has.
    #[error("no header has this name")]
    Name,
    /// The venue sets the header.
    #[error("the venue sets this header")]
    OfVenue,
    /// Another header has the same name, in another case.
    #[error("a header of this name is declared already")]
    Twice,
    /// The content type has a key of its own.
    #[error("use `contentType`")]
    ContentType,
    /// The value is no text and no reference.
    #[error("expected a text or `{{\"$secret\": \"s/NAME\"}}`")]
    Value,
    /// The text has characters that no header has.
    #[error("expected one line of printable ASCII")]
    Line,
    /// The reference to a secret is malformed.
    #[error(transparent)]
    Secret(#[from] SecretReferenceError),
    /// The text with arguments is malformed.
    #[error(transparent)]
    Template(#[from] TemplateRule),
}
