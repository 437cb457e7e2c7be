//! Usage counts of owners that differ from what is stored.

use crate::domain::ids::Owner;
use crate::domain::quota::{QuotaKind, QuotaUsage};
use crate::process::retry::{AttemptFailure, RetryPolicy, retry};
use crate::store::{Recount, StoreError};
use crate::venue::Venue;
use std::time::Duration;

/// How long a step of a recount is retried while the store is away.
const AWAY: RetryPolicy = RetryPolicy { total: Some(Duration::from_secs(10)), ..RetryPolicy::CONNECT };

/// Returns how the counts of an owner differ from what is stored, as a text; with `mend` they are corrected.
pub(super) async fn find_drift(venue: &Venue, owner: &Owner, mend: bool) -> Result<Option<String>, StoreError> {
    let step = || async { venue.store.recount(owner, mend).await.map_err(AttemptFailure::from) };
    loop {
        // A lost step is continued by the next call; but with `mend` a retry would hide what was corrected.
        let found = if mend { venue.store.recount(owner, mend).await } else { retry(AWAY, "the store", step).await };
        match found? {
            Recount::More => {}
            Recount::Done { stored: was, counted: is } => return Ok(describe_drift(&was, &is)),
        }
    }
}

fn describe_drift(was: &QuotaUsage, is: &QuotaUsage) -> Option<String> {
    let differ = QuotaKind::ALL.into_iter().filter(|kind| was.get(*kind) != is.get(*kind));
    let words: Vec<_> =
        differ.map(|kind| format!("{} {} where {} are", was.get(kind), kind.as_str(), is.get(kind))).collect();
    (!words.is_empty()).then(|| format!("its quota counts {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differing_counts_are_named() {
        let was = QuotaUsage { documents: 1, bytes: 20, sessions: 3, jobs: 4 };
        assert_eq!(describe_drift(&was, &was), None);
        let is = QuotaUsage { bytes: 10, jobs: 5, ..was };
        assert_eq!(describe_drift(&was, &is).unwrap(), "its quota counts 20 bytes where 10 are, 4 jobs where 5 are");
    }
}
