//! Context: what a turn shows to the model. Sections in the order of `spec/context.md`.

pub mod entry;
