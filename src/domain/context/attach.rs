//! Decides which pictures and files of assets a prompt shows.
//!
//! | referred to in | is shown |
//! |---|---|
//! | the open task | always; a new task whose attachment can't be shown gets no prompt |
//! | a piece of context, a result, a message | while there is room |
//! | earlier turns | the newest that there is room for |
//!
//! An asset stands where it is first referred to. A line replaces each asset that is not shown.

use super::inputs::{Inputs, ServedEvents};
use super::item::PromptItem;
use super::ledger::{Row, RowStatus};
use super::transcript_turn::TranscriptTurn;
use crate::chat::ChatMessage;
use crate::context::budget::PromptBudget;
use crate::context::goals::GoalView;
use crate::event::{Event, Payload};
use crate::ids::AssetId;
use crate::limits::{ATTACHMENTS, ATTACHMENTS_BYTES, ATTACHMENTS_READ};
use crate::media::{Attachment, LINE_BYTES, References, references};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Part of the budget (1/3) that attachments may take, without those of the open task.
const SHARE: usize = 3;
/// Number of attachments of earlier turns that leave a prompt at once, because each change costs the provider's cache.
const STEP: usize = 5;
/// Characters of an asset's hash in the ledger.
const KEY_CHARS: usize = 12;
/// Reason for hiding an attachment of an earlier turn.
const TOO_OLD: &str = "it is older than those that a prompt has room for; refer to it again to see it";
/// Reason for hiding an attachment that is shown above.
const REPEATED: &str = "it stands above";

/// Returns the assets that an event refers to.
pub fn references_of(event: &Event) -> References {
    match &event.payload {
        Payload::Task { input, .. } | Payload::Message { input, .. } => references(input),
        Payload::Result { result, .. } => result.output.as_ref().map(references).unwrap_or_default(),
        Payload::Decision { .. } => References::default(),
    }
}

/// Returns the assets that a prompt may show, in the order of their importance: those of the open task, of pieces of
/// context and of events, and then the newest of earlier turns, up to the limit of lookups.
pub fn assets_to_look_up(items: &[PromptItem], served: &ServedEvents, turns: &[Arc<TranscriptTurn>]) -> Vec<AssetId> {
    let mut found: Vec<AssetId> = Vec::new();
    let groups = AttachmentGroups::collect(items, served, turns);
    for asset in groups.task.into_iter().chain(groups.current).chain(groups.earlier.into_iter().rev()) {
        if found.len() < ATTACHMENTS_READ && !found.contains(&asset) {
            found.push(asset);
        }
    }
    found
}

/// Assets grouped by what refers to them.
struct AttachmentGroups {
    task: Vec<AssetId>,
    /// Assets of pieces of context, results and messages.
    current: Vec<AssetId>,
    /// Assets of earlier turns, in the order of the last turn that refers to each.
    earlier: Vec<AssetId>,
}

impl AttachmentGroups {
    fn collect(items: &[PromptItem], served: &ServedEvents, turns: &[Arc<TranscriptTurn>]) -> Self {
        let events = served.results.iter().chain(&served.messages).map(|(_, event)| event);
        let current = items.iter().flat_map(|item| item.attachments.clone());
        let current = current.chain(events.flat_map(|event| references_of(event).assets)).collect();
        let task = served.task.iter().flat_map(|task| references_of(task).assets).collect();
        let goals: &GoalView = &served.goals;
        let shown = turns.iter().filter(|turn| goals.shows(turn));
        let heard = shown.flat_map(|turn| &turn.heard).flat_map(|heard| &heard.attachments);
        let last: BTreeMap<&AssetId, usize> = heard.zip(0..).collect();
        let mut earlier: Vec<_> = last.into_iter().map(|(asset, at)| (at, asset.clone())).collect();
        earlier.sort_unstable();
        Self { task, current, earlier: earlier.into_iter().map(|(_, asset)| asset).collect() }
    }
}

/// Returns the label and the reason if a new task gets no prompt because it refers to something that can't be shown.
pub(super) fn missing_attachment(inputs: &Inputs) -> Option<(String, String)> {
    let task = inputs.served.task.as_ref()?;
    if inputs.transcript.iter().any(|turn| turn.job.as_ref() == task.job()) {
        return None;
    }
    let References { assets, malformed } = references_of(task);
    if let Some(malformed) = malformed {
        return Some((malformed, r#"expected `{"$asset": "a/HASH"}` and nothing beside it"#.to_owned()));
    }
    if assets.len() > ATTACHMENTS {
        let reason = format!("a task may have {ATTACHMENTS} attachments, got {}", assets.len());
        return Some(("attachments".to_owned(), reason));
    }
    let known = |asset: &AssetId| inputs.attachments.iter().find(|known| known.asset == *asset);
    let mut bytes = 0;
    for asset in &assets {
        let attachment = known(asset)?;
        bytes += attachment.size;
        let too_much = (bytes > ATTACHMENTS_BYTES).then(|| {
            format!("the attachments of a task may have {ATTACHMENTS_BYTES} bytes together, with it they have {bytes}")
        });
        if let Some(reason) = attachment.withheld.clone().or(too_much) {
            return Some((format!("a/{asset}"), reason));
        }
    }
    None
}

/// Why a prompt doesn't show an attachment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum AttachmentRoomError {
    /// The attachment is not among those that were looked up, or leaves with others of earlier turns.
    #[error("{TOO_OLD}")]
    TooOld,
    /// The prompt shows [`ATTACHMENTS`] others.
    #[error("a request shows {ATTACHMENTS} attachments at most")]
    TooMany,
    /// The shown attachments would have more than [`ATTACHMENTS_BYTES`].
    #[error("a request shows {ATTACHMENTS_BYTES} bytes of attachments at most")]
    TooLarge,
    /// The attachment doesn't fit into the budget; holds its tokens.
    // Numbers that change from turn to turn would change the stable part of the prompt.
    #[error("no room: it takes about {0} tokens of the budget; raise `contextBudget`")]
    NoRoom(usize),
}

/// The decision on each attachment of a prompt.
#[derive(Debug, Default)]
pub(super) struct AttachmentPlan {
    known: BTreeMap<AssetId, Attachment>,
    /// Bytes of the budget that the shown attachments take.
    weight: usize,
    budget: PromptBudget,
}

impl AttachmentPlan {
    /// Plans a prompt whose fixed parts leave `left` bytes of the budget.
    pub(super) fn new(inputs: &Inputs, left: usize) -> Self {
        let budget = inputs.moment.budget;
        let known = inputs.attachments.iter().map(|known| (known.asset.clone(), known.clone())).collect();
        let mut plan = Self { known, weight: 0, budget };
        let AttachmentGroups { task, current, earlier } =
            AttachmentGroups::collect(&inputs.items, &inputs.served, &inputs.transcript);
        let mut taken = ShownAttachments { weight: task.len() * LINE_BYTES, ..ShownAttachments::default() };
        plan.weight = taken.weight;
        for asset in &task {
            let withheld = plan.offer_asset(asset, &mut taken, usize::MAX).err();
            plan.withhold(asset, withheld);
        }
        let room = (budget.bytes / SHARE).min(left.saturating_sub(plan.weight) / 2).saturating_add(plan.weight);
        for asset in &current {
            let withheld = plan.offer_asset(asset, &mut taken, room).err();
            plan.withhold(asset, withheld);
        }
        plan.show_earlier(&earlier, &mut taken, room);
        plan
    }

    /// Shows the newest attachments of earlier turns. The oldest leave in steps.
    fn show_earlier(&mut self, earlier: &[AssetId], taken: &mut ShownAttachments, room: usize) {
        let is_open = |asset: &&AssetId| self.known.contains_key(*asset) && !taken.assets.contains(*asset);
        let all = earlier.len();
        let earlier: Vec<&AssetId> = earlier.iter().filter(is_open).collect();
        // Steps are counted from the first of all attachments, so that a new one doesn't move them.
        let before = all - earlier.len();
        let newest_first = || earlier.iter().enumerate().rev();
        let mut trial = taken.clone();
        let mut first = 0;
        for (at, asset) in newest_first() {
            if self.known.get(*asset).is_some_and(Attachment::is_shown)
                && self.check_asset_room(asset, &trial, room).is_err()
            {
                first = at + 1;
                break;
            }
            self.take_asset(asset, &mut trial);
        }
        let step = (before + first).next_multiple_of(STEP).saturating_sub(before);
        let first = if first == 0 { 0 } else { step.min(earlier.len().saturating_sub(1)).max(first) };
        for (at, asset) in newest_first() {
            let withheld =
                if at < first { Some(AttachmentRoomError::TooOld) } else { self.offer_asset(asset, taken, room).err() };
            self.withhold(asset, withheld);
        }
    }

    fn offer_asset(
        &mut self,
        asset: &AssetId,
        taken: &mut ShownAttachments,
        room: usize,
    ) -> Result<(), AttachmentRoomError> {
        if taken.assets.contains(asset) {
            return Ok(());
        }
        self.check_asset_room(asset, taken, room)?;
        self.take_asset(asset, taken);
        self.weight = taken.weight;
        Ok(())
    }

    fn check_asset_room(
        &self,
        asset: &AssetId,
        taken: &ShownAttachments,
        room: usize,
    ) -> Result<(), AttachmentRoomError> {
        let Some(attachment) = self.known.get(asset) else { return Err(AttachmentRoomError::TooOld) };
        if attachment.withheld.is_some() {
            return Ok(());
        }
        if taken.assets.len() >= ATTACHMENTS {
            return Err(AttachmentRoomError::TooMany);
        }
        if taken.bytes + attachment.size > ATTACHMENTS_BYTES {
            return Err(AttachmentRoomError::TooLarge);
        }
        let weight = self.weight_of(attachment);
        if taken.weight.saturating_add(weight) > room {
            return Err(AttachmentRoomError::NoRoom(attachment.tokens));
        }
        Ok(())
    }

    fn take_asset(&self, asset: &AssetId, taken: &mut ShownAttachments) {
        let Some(attachment) = self.known.get(asset).filter(|known| known.is_shown()) else { return };
        if taken.assets.insert(asset.clone()) {
            taken.bytes += attachment.size;
            taken.weight = taken.weight.saturating_add(self.weight_of(attachment));
        }
    }

    /// Returns the bytes of text that cost as much as an attachment.
    fn weight_of(&self, attachment: &Attachment) -> usize {
        attachment.tokens.saturating_mul(self.budget.ratio as usize) / 1_000
    }

    fn withhold(&mut self, asset: &AssetId, error: Option<AttachmentRoomError>) {
        let Some(error) = error else { return };
        let known = self.known.remove(asset).unwrap_or_else(|| Attachment::of_asset(asset.clone()));
        let known = if known.is_shown() { known.withhold(error.to_string()) } else { known };
        self.known.insert(asset.clone(), known);
    }

    /// Returns the bytes of the budget that the shown attachments take.
    pub(super) const fn weight(&self) -> usize {
        self.weight
    }

    /// Sets content and reasons of the attachments in messages.
    pub(super) fn resolve(&self, messages: &mut [ChatMessage]) {
        let mut shown = BTreeSet::new();
        for message in messages {
            let ChatMessage::User { attachments, .. } = message else { continue };
            for attachment in attachments {
                let unknown = || Attachment::of_asset(attachment.asset.clone()).withhold(TOO_OLD);
                let found = self.known.get(&attachment.asset).cloned().unwrap_or_else(unknown);
                let is_repeated = found.is_shown() && !shown.insert(found.asset.clone());
                *attachment = if is_repeated { found.withhold(REPEATED) } else { found };
            }
        }
    }

    /// Returns the ledger's rows of the attachments.
    pub(super) fn rows(&self) -> Vec<Row> {
        let row = |attachment: &Attachment| {
            let weight = self.weight_of(attachment);
            let given = if attachment.is_shown() { weight } else { 0 };
            let status = match &attachment.withheld {
                None => RowStatus::Full,
                // The asset could be shown, but there was no room.
                Some(_) if attachment.media.is_some() => RowStatus::Dropped,
                Some(_) => RowStatus::Failed,
            };
            let key = format!("attachment/{}", &attachment.asset.as_str()[..KEY_CHARS]);
            let source = Some(format!("a/{}", attachment.asset));
            let reason = attachment.withheld.clone();
            Row { source, asked: weight, given, rendered: given, status, reason, ..Row::new_fixed(&key, 0) }
        };
        self.known.values().map(row).collect()
    }
}

/// The attachments that the plan shows so far.
#[derive(Debug, Clone, Default)]
struct ShownAttachments {
    assets: BTreeSet<AssetId>,
    bytes: usize,
    weight: usize,
}
