//! The sections of a turn's context that go with its calls: captured when the prompt is made, chosen by the reply, and
//! cut to the limit of a call.

mod capture;
mod choose;
mod hand_off;
#[cfg(test)]
mod tests;

pub use capture::{Sections, handed_items, instances};
pub use choose::{ChosenSections, ScopeChoice, take_scope_choice};
