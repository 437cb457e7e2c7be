//! Places elsewhere whose description a person approves: it is stored, published as operations before a turn begins, and
//! compared with what the place says later.
//!
//! ```text
//! configuration ─▶ what is approved, in the store ─▶ publication ─▶ tools of the turn
//!                        ▲ first use, or a person    (a change waits, and is refused until then)
//!                  the place itself, in the background
//! ```

mod find;
mod pins;
mod prepare;
mod warnings;

pub(crate) use find::{NamedPlace, WantedPlace, find_place, list_places};
pub(crate) use pins::{approve, load, no_change};
pub(crate) use prepare::{
    PinnedPlace, absence_reason, prepare_path, prepare_preview, prepare_stored, prepare_turn, publish, refresh, watch,
};
pub(crate) use warnings::{missing_place_secrets, refused_places};
