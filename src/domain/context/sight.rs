//! How much of a session's turns another turn may see.
//!
//! | a turn | is shown |
//! |---|---|
//! | whose authority and request the viewer doesn't cover | not at all |
//! | that knew and returned nothing that was revoked for the viewer | whole |
//! | otherwise, in the exchange that is not answered yet | with marks in place of the revoked parts |
//! | otherwise | not at all |

use super::item::{ItemContent, PromptItem};
use super::text;
use super::transcript_turn::TranscriptTurn;
use crate::authority::{Authority, Capability, Holder, ResourcePath};
use crate::chat::ChatMessage;
use crate::media::Attachment;
use crate::session::{CallRecord, TurnRecord};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// The tool whose result holds what the turns of another goal have found.
pub(super) const SUBGOAL: &str = "subgoal";

/// The turn that views earlier turns.
#[derive(Debug, Clone, Copy)]
pub struct Viewer<'a> {
    /// Authority of the turn.
    pub authority: &'a Authority,
    /// Most authority of its request.
    pub bound: &'a Authority,
}

/// How much of a turn is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sight {
    /// The whole turn is shown.
    Whole,
    /// The turn is shown with these parts marked.
    Marked(RevokedMarks),
    /// The turn is hidden.
    Hidden,
}

/// The parts of a turn that the viewer may not know, each with the capability that allowed them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RevokedMarks {
    /// Capability of the model's words.
    said: Option<Capability>,
    /// Calls whose results are marked, by index, with their capabilities.
    results: Vec<(usize, Capability)>,
}

impl Viewer<'_> {
    /// Whether the turn ran for a request that the viewer stands for, or under no more authority than the viewer has.
    /// If the turn records what it used, later revocations are checked separately.
    pub fn stands_for(&self, turn: &TurnRecord) -> bool {
        self.authority.covers(&turn.authority) || (turn.used.is_some() && self.bound.covers(&turn.bound))
    }

    /// Returns the hash of the viewer, with `any_job` as its authority.
    fn key(&self, any_job: &Authority) -> ViewerKey {
        let same = (any_job, self.bound.clone().without_home());
        ViewerKey(Sha256::digest(serde_json::to_vec(&same).expect("authority serialises")).into())
    }
}

/// Hash of a [`Viewer`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ViewerKey([u8; 32]);

/// Returns the capabilities that allowed the reads of a prompt's items and attachments.
pub fn used_capabilities(items: &[PromptItem], attachments: &[Attachment], authority: &Authority) -> Vec<Capability> {
    let shown = items.iter().filter(|item| !matches!(item.content, ItemContent::Absent(..)));
    let mut used: Vec<Capability> = Vec::new();
    let pieces = shown.flat_map(|item| item.tags.needs.clone());
    let assets = attachments.iter().filter(|attachment| attachment.is_shown());
    let assets = assets.map(|attachment| ("crud/read".to_owned(), ResourcePath::asset(&attachment.asset)));
    for cap in pieces.chain(assets).filter_map(|(can, on)| authority.recorded_use(&can, &on)) {
        if !used.contains(&cap) {
            used.push(cap);
        }
    }
    used
}

/// Returns how much of each of a session's turns is shown, oldest first. `open` tells whether a turn belongs to the
/// exchange that is not answered yet.
pub fn turn_sights(
    turns: &[Arc<TranscriptTurn>],
    viewer: Viewer<'_>,
    open: impl Fn(&TurnRecord) -> bool,
) -> Vec<Sight> {
    let holder = Holder::new(viewer.authority);
    let may_know = |cap: &Capability| holder.may_know(cap);
    // Capabilities of the turns so far that the viewer doesn't have.
    let mut lost: Vec<&Capability> = Vec::new();
    let mut marked: Vec<RevokedMarks> = Vec::with_capacity(turns.len());
    let mut stands: Vec<bool> = Vec::with_capacity(turns.len());
    // Most turns were viewed before by a similar turn, perhaps of another job.
    let any_job = viewer.authority.clone().without_job();
    let (key, anywhere) = (viewer.key(&any_job), Holder::new(&any_job));
    let is_clean = |turn: &TurnRecord| {
        let learned = || turn.used.iter().flatten().chain(turn.calls.iter().flat_map(|call| &call.needs));
        viewer.stands_for(turn) && learned().all(|cap| anywhere.may_know(cap))
    };
    for turn in turns {
        if lost.is_empty() && (turn.is_whole_for(&key) || is_clean(turn)) {
            turn.remember_whole_for(&key);
            marked.push(RevokedMarks::default());
            stands.push(true);
            continue;
        }
        let read = turn.used.iter().flatten().find(|cap| !may_know(cap));
        let said = read.or_else(|| lost.iter().copied().find(|cap| could_know(turn, cap)));
        let results =
            (0..).zip(&turn.calls).filter_map(|(at, call)| Some((at, call.needs.iter().find(|cap| !may_know(cap))?)));
        let results: Vec<_> = results.collect();
        for cap in read.into_iter().chain(results.iter().map(|(_, cap)| *cap)) {
            if !lost.contains(&cap) {
                lost.push(cap);
            }
        }
        let results = results.into_iter().map(|(at, cap)| (at, cap.clone())).collect();
        marked.push(RevokedMarks { said: said.cloned(), results });
        stands.push(viewer.stands_for(turn));
    }
    if !lost.is_empty() {
        mark_openers(turns, &mut marked);
    }
    let shown = turns.iter().zip(marked).zip(stands).map(|((turn, marks), stands)| match stands {
        true if marks.is_empty() => Sight::Whole,
        true if open(turn) => Sight::Marked(marks),
        true | false => Sight::Hidden,
    });
    shown.collect()
}

/// Whether the turn had in its prompt, or could have had, what was learned by this capability.
fn could_know(turn: &TurnRecord, learned: &Capability) -> bool {
    turn.wider.as_ref().unwrap_or(&turn.authority).permits(&learned.can, ResourcePath::from_capability(learned)).is_ok()
}

/// Marks the call that opened a goal if turns of the goal knew something revoked, because its result holds what they
/// found.
fn mark_openers(turns: &[Arc<TranscriptTurn>], marked: &mut [RevokedMarks]) {
    for inner in (0..turns.len()).rev() {
        let why = marked[inner].said.clone().or_else(|| marked[inner].results.first().map(|(_, cap)| cap.clone()));
        let Some(why) = why else { continue };
        let Some(opener) = (0..inner).rev().find(|at| turns[*at].frame < turns[inner].frame) else { continue };
        let opening = (0..).zip(&turns[opener].calls).filter(|(_, call)| call.operation == SUBGOAL);
        for at in opening.map(|(at, _)| at) {
            let known = marked[opener].results.iter().any(|(place, _)| *place == at);
            if !known {
                marked[opener].results.push((at, why.clone()));
            }
        }
    }
}

impl RevokedMarks {
    const fn is_empty(&self) -> bool {
        self.said.is_none() && self.results.is_empty()
    }

    /// Replaces the marked parts in the messages of a turn by notes.
    pub fn hide_marked(&self, said: &mut [ChatMessage], calls: &[CallRecord]) {
        if let Some(by) = &self.said {
            for message in &mut *said {
                if let ChatMessage::Assistant { text, reasoning, .. } = message {
                    // The reasoning may quote the same content.
                    *reasoning = None;
                    if !text.is_empty() {
                        *text = text::words_withheld(by);
                    }
                }
            }
        }
        let results = said.iter_mut().filter_map(|message| match message {
            ChatMessage::Tool { text, .. } => Some(text),
            ChatMessage::User { .. } | ChatMessage::Assistant { .. } => None,
        });
        for (at, (result, call)) in results.zip(calls).enumerate() {
            if let Some((_, by)) = self.results.iter().find(|(place, _)| *place == at) {
                *result = text::result_withheld(by, &call.outcome);
            }
        }
    }
}

#[cfg(test)]
mod tests;
