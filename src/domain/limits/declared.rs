//! Limits of tools by declaration: calls of services, and jobs for external workers.

use std::time::Duration;

/// Bytes of the URL of a declared call, with its arguments.
pub const DECLARED_URL_BYTES: usize = 8 * 1024;

/// Bytes of a declaration: views of the catalogue keep many of them.
pub const DECLARED_BYTES: usize = 48 * 1024;

/// Bytes of the texts of a declared request with its arguments, before they are encoded. A declaration may use an argument
/// many times.
pub const DECLARED_REQUEST_BYTES: usize = 4 * 1024 * 1024;

/// Headers of a declared call.
pub const DECLARED_HEADERS: usize = 50;

/// Parameters of the query of a declared call.
pub const DECLARED_QUERY: usize = 100;

/// Attempts of one declared call, the first one included: a service that restarts is back after the second.
pub const DECLARED_ATTEMPTS: u32 = 3;

/// Pause before the second attempt; the one before the third is twice as long.
pub const DECLARED_PAUSE: Duration = Duration::from_millis(250);

/// Longest pause that a service may ask for by `Retry-After` and that a call waits: longer ones end the call.
pub const DECLARED_PAUSE_MAX: Duration = Duration::from_secs(20);

/// Bytes of a refusing answer that the model sees.
pub const DECLARED_REFUSAL_BYTES: usize = 1_000;

/// Meanings of statuses in one declaration.
pub const DECLARED_STATUSES: usize = 50;

/// Operations that one import of an OpenAPI document declares.
pub const IMPORTED_TOOLS: usize = 256;

/// Schemas of an OpenAPI document to which those of one operation may refer, also by way of others.
pub const IMPORTED_SCHEMAS: usize = 512;

/// Steps of references that an import follows from one place of an OpenAPI document.
pub const IMPORTED_REFERENCES: usize = 64;
