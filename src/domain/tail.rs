//! What a store had acknowledged and was found without.

use crate::ids::Owner;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};

/// One thing that was acknowledged and isn't there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Loss {
    /// Whose.
    pub owner: Owner,
    /// When that was.
    pub acknowledged: Millis,
    /// An event, the end of a job, a turn or a document, in words with its id.
    pub what: String,
    /// How it stands instead, in words; `None`: it is there again, under the same id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// What one process found missing at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Losses {
    /// When that was found.
    pub found: Millis,
    /// The worker or server that had been told that it was kept.
    pub by: String,
    /// How much it was.
    pub total: u64,
    /// The first of it.
    pub lines: Vec<Loss>,
}

impl Losses {
    /// Lines that are kept; the log has all.
    pub const LINES: usize = 200;

    /// Of all that was found.
    pub fn of(found: Millis, by: &str, mut all: Vec<Loss>) -> Self {
        let total = all.len() as u64;
        // What is gone is worth more words than what is back.
        all.sort_by_key(|loss| loss.lost.is_none());
        all.truncate(Self::LINES);
        Self { found, by: by.to_owned(), total, lines: all }
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { owner, acknowledged, what, lost } = self;
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
        Loss { owner: "acme/ada".parse().unwrap(), acknowledged: Millis(n), what: format!("turn {n} of `a/s`"), lost }
    }

    #[test]
    fn what_is_gone_is_named_before_what_is_back() {
        let losses = Losses::of(Millis(9), "w1", (0..300).map(loss).collect());
        assert_eq!((losses.total, losses.lines.len()), (300, Losses::LINES));
        let said: Vec<_> = losses.lines.iter().take(2).map(ToString::to_string).collect();
        let at = "acknowledged at 1970-01-01T00:00:00";
        assert_eq!(said[0], format!("acme/ada: turn 299 of `a/s`, {at}.299Z: lost, its session is as before it"));
        assert_eq!(said[1], format!("acme/ada: turn 0 of `a/s`, {at}.000Z: it was missing and is put back"));
        assert_eq!(serde_json::from_str::<Losses>(&serde_json::to_string(&losses).unwrap()).unwrap(), losses);
    }
}
