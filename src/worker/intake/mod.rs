//! Stages 1 and 2: one delivery of the queue is admitted to its session, refused with an answer, or kept as a stray,
//! and then settled. An admitted session that gets a lease runs (stage 3). This module reads no session.

pub(super) mod receive;
mod deliveries;
mod submission;
mod result;
mod wakes;
mod orders;

mod admit;
pub(super) mod direct;
pub(super) mod due_sessions;
pub(super) mod questions;

mod callers;
mod refuse;
mod stray;
mod reply_subject;
mod settle;
