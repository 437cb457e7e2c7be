//! Context: what a turn shows to the model, rebuilt from its inputs every time.
//!
//! ```text
//! configuration, state, loads ─▶ entry::plan ─▶ (worker fetches) ─▶ Inputs ─▶ assemble ─▶ prompt + ledger
//! ```
//!
//! [`item::Section`] has the order of the sections, [`text`] their exact words.

pub mod assemble;
pub mod attach;
pub mod budget;
pub mod digest;
pub mod entry;
pub mod events;
pub mod fill;
mod frame;
pub mod goals;
pub mod inputs;
pub mod item;
pub mod ledger;
mod map;
mod message;
mod offer;
pub mod transcript_turn;
pub mod record;
pub mod result;
pub mod sight;
pub mod text;
pub mod tiles;
mod transcript;
pub mod window;

#[cfg(test)]
mod tests;
