//! What of a turn's context goes with its calls: captured when the prompt is made, chosen by the reply,
//! cut to what may be handed on.

mod capture;
mod choose;
mod cut;
#[cfg(test)]
mod tests;

pub use capture::{Sections, instances, received};
pub use choose::{Chosen, ScopeChoice, take};
