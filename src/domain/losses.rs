//! Losses: changes that a store had acknowledged and was found without.

use crate::ids::Owner;
use crate::journal::JournaledChange;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// One acknowledged change that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Owner of the changed document.
    pub owner: Owner,
    /// Time of the acknowledgement.
    pub acknowledged: Millis,
    /// Kind of the change in words, for sums; empty in records of older builds.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Change in words with its id: an event, the end of a job, a turn or a document.
    pub what: String,
    /// Present state in words; `None`: the change is restored under the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Change by which the store is asked whether it has it again; absent where that isn't known, and in records of older
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<JournaledChange>,
}

/// Losses that one process found at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Losses {
    /// Time of the comparison that found the losses.
    pub found: Millis,
    /// Name of the worker or server that got the acknowledgements.
    pub by: String,
    /// Number of losses.
    pub total: u64,
    /// Number of losses by kind that are not restored.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<String, u64>,
    /// Limits of the find in words, e.g. that the journal doesn't reach back far enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Some of the losses; the others have records of their own.
    pub lines: Vec<Loss>,
}

/// Time up to which the store is known to be complete, with its servers' own names of their histories.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SafePoint {
    /// Names of the histories of its servers.
    pub names: Vec<String>,
    /// Time before which every acknowledged change is in the store.
    pub at: Millis,
}

impl SafePoint {
    /// Whether every one of these histories existed at the safe point.
    pub fn covers(&self, names: &[String]) -> bool {
        names.iter().all(|name| self.names.contains(name))
    }
}

/// Confirmation of an operator that losses were read and handled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LossSettlement {
    /// Time up to which finds are settled.
    pub at: Millis,
    /// Name of the operator, in the form of callers.
    pub by: String,
}

impl Losses {
    /// Number of losses that one record names at most.
    pub const LINES: usize = 200;

    /// Makes the records of a find; the first has the sums and the notes. Losses come before restored changes.
    pub fn split(found: Millis, by: &str, mut all: Vec<Loss>, notes: Vec<String>) -> Vec<Self> {
        let total = all.len() as u64;
        let mut kinds = BTreeMap::new();
        for loss in all.iter().filter(|loss| loss.lost.is_some()) {
            *kinds.entry(loss.kind.clone()).or_default() += 1;
        }
        all.sort_by_key(|loss| loss.lost.is_none());
        let part = |lines: &[Loss]| Self {
            found,
            by: by.to_owned(),
            total: 0,
            kinds: BTreeMap::new(),
            notes: Vec::new(),
            lines: lines.to_vec(),
        };
        let mut parts: Vec<_> = all.chunks(Self::LINES).map(part).collect();
        if parts.is_empty() {
            parts.push(part(&[]));
        }
        if let Some(first) = parts.first_mut() {
            (first.total, first.kinds, first.notes) = (total, kinds, notes);
        }
        parts
    }

    /// Whether an operator should know: something is lost, or may be.
    pub fn is_serious(&self) -> bool {
        !self.kinds.is_empty() || !self.notes.is_empty()
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { owner, acknowledged, what, lost, .. } = self;
        write!(f, "{owner}: {what}, acknowledged at {}: ", acknowledged.rfc3339())?;
        match lost {
            None => write!(f, "it was missing and is put back"),
            Some(stands) => write!(f, "lost, {stands}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(n: u64) -> Loss {
        let lost = (n == 299).then(|| "its session is as before it".to_owned());
        let what = format!("turn {n} of `a/s`");
        let owner = "acme/ada".parse().unwrap();
        Loss { owner, acknowledged: Millis(n), kind: "turns".to_owned(), what, lost, change: None }
    }

    #[test]
    fn lost_changes_are_named_before_restored_ones() {
        let parts = Losses::split(Millis(9), "w1", (0..300).map(loss).collect(), Vec::new());
        assert_eq!(parts.iter().map(|part| part.lines.len()).collect::<Vec<_>>(), [Losses::LINES, 100]);
        let losses = parts.first().unwrap();
        assert_eq!((losses.total, losses.kinds["turns"], losses.is_serious()), (300, 1, true));
        let said: Vec<_> = losses.lines.iter().take(2).map(ToString::to_string).collect();
        let at = "acknowledged at 1970-01-01T00:00:00";
        assert_eq!(said[0], format!("acme/ada: turn 299 of `a/s`, {at}.299Z: lost, its session is as before it"));
        assert_eq!(said[1], format!("acme/ada: turn 0 of `a/s`, {at}.000Z: it was missing and is put back"));
        assert_eq!(serde_json::from_str::<Losses>(&serde_json::to_string(losses).unwrap()).unwrap(), *losses);
    }
}
