//! Counts of what owners keep that are not what is there.

use crate::domain::ids::Owner;
use crate::domain::quota::{QuotaKind, QuotaUsage};
use crate::store::{Recount, StoreError};
use crate::venue::Venue;
use std::time::Duration;

/// How often a recount is asked for when the store is away, and the pause between two.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(500);

/// How the counts of an owner differ from what is there, in words; with `mend` what is there counts from then on.
pub(super) async fn drift(venue: &Venue, owner: &Owner, mend: bool) -> Result<Option<String>, StoreError> {
    let mut tries = 1;
    loop {
        match venue.store.recount(owner, mend).await {
            Ok(Recount::More) => {}
            Ok(Recount::Done { was, is }) => return Ok(differs(&was, &is)),
            // Whichever step was lost, the next call goes on; but what was mended would be told by nobody.
            Err(error) if error.is_transient() && !mend && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
}

fn differs(was: &QuotaUsage, is: &QuotaUsage) -> Option<String> {
    let differ = QuotaKind::ALL.into_iter().filter(|kind| was.get(*kind) != is.get(*kind));
    let words: Vec<_> =
        differ.map(|kind| format!("{} {} where {} are", was.get(kind), kind.as_str(), is.get(kind))).collect();
    (!words.is_empty()).then(|| format!("its quota counts {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let was = QuotaUsage { documents: 1, bytes: 20, sessions: 3, jobs: 4 };
        assert_eq!(differs(&was, &was), None);
        let is = QuotaUsage { bytes: 10, jobs: 5, ..was };
        assert_eq!(differs(&was, &is).unwrap(), "its quota counts 20 bytes where 10 are, 4 jobs where 5 are");
    }
}
