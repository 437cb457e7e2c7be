//! Context: what a turn shows to the model. Sections in the order of `spec/context.md`.

pub mod assemble;
pub mod entry;
pub mod text;
