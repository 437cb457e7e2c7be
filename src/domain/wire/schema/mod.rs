//! Projects JSON Schemas to the subset that a provider takes.
//!
//! The projected schema is never stricter than the given one, as far as the subset allows; the value that comes back is
//! checked by the given schema. Keywords outside the subset are stated in a description. Values for which Gemini has no
//! type (maps with any keys, values of any type, numbers to choose from, deep and recursive parts) are sent as JSON
//! text, and [`Renames::restore`] reads it.

mod arguments;
mod error;
mod gemini;
mod keys;
mod limits;
mod notes;
mod plain;
mod project;
mod projected;
mod renames;
mod source;
#[cfg(test)]
pub(crate) mod tests;
mod union;

pub use error::{ProjectionError, ProjectionFault};
pub use project::project;
pub use projected::ProjectedSchema;
pub use renames::{JsonKind, Renames};
