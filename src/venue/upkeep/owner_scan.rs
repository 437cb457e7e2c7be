//! A paced scan of all owners: its cost is spread evenly over time, and does not depend on how often it is asked.

use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{Store, StoreError};
use std::time::Duration;

/// Owners that are read at a time.
const PAGE: usize = 100;

/// Shortest time between two pages in milliseconds: very many owners take longer, but never more at a time.
const BETWEEN: u64 = 1_500;

/// Position of the scan.
///
/// The first scan runs without pauses. After it the scan continues where it would be, by the wall clock, if it had
/// always run, so that no owner is left out where processes start often.
#[derive(Debug)]
pub struct PacedOwnerScan {
    /// Time of one scan in milliseconds; longer for very many pages.
    cycle: u64,
    /// When due pages were counted last.
    looked: Option<Millis>,
    /// Due pages, in units of which a page has [`PacedOwnerScan::cycle_length`].
    credit: u64,
    /// Pages of the list, as they were counted at its end.
    pages: Option<u64>,
    /// Pages since the beginning of the list.
    passed: u64,
    /// The owner after which the scan continues; `None` = at the beginning.
    after: Option<Owner>,
    /// The last owner of each page, during the first scan.
    ends: Vec<Owner>,
}

impl PacedOwnerScan {
    /// Makes a scan that takes `cycle`, at least a second. With more than 100 owners per 1.5 s of the cycle it takes
    /// longer.
    pub fn new(cycle: Duration) -> Self {
        Self {
            cycle: u64::try_from(cycle.as_millis()).unwrap_or(u64::MAX).max(1_000),
            looked: None,
            credit: 0,
            pages: None,
            passed: 0,
            after: None,
            ends: Vec::new(),
        }
    }

    /// Makes the whole list due.
    pub fn restart(&mut self) {
        *self = Self::new(Duration::from_millis(self.cycle));
    }

    /// Whether the first scan has not ended.
    pub fn is_first(&self) -> bool {
        self.pages.is_none()
    }

    /// Counts the pages that have become due, at most the whole list. A clock that was set back makes none due.
    pub fn count_due(&mut self, now: Millis) {
        let looked = self.looked.replace(now).unwrap_or(now);
        let Some(pages) = self.pages else { return };
        let came = u64::try_from(now.elapsed_since(looked).as_millis()).unwrap_or(u64::MAX);
        self.credit = self.credit.saturating_add(came.saturating_mul(pages)).min(self.full_credit());
    }

    /// Returns the next due page; `None` if none is due. After an error the page is returned again.
    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<Owner>>, StoreError> {
        // Owners that were added after the counted end are due at once: the scan keeps up however fast the list grows.
        if self.pages.is_some_and(|pages| self.passed < pages) && self.credit < self.cycle_length() {
            return Ok(None);
        }
        let first = self.is_first();
        // The first scan ends with the list.
        if first && self.passed > 0 && self.after.is_none() {
            self.resume_by_clock();
            return Ok(None);
        }
        let mut owners = store.all_owners().start_after(self.after.clone()).page_size(PAGE);
        let page = owners.next().await?.unwrap_or_default();
        self.passed += 1;
        self.after = owners.last_place();
        if first {
            self.ends.extend(self.after.clone());
        } else {
            self.credit = self.credit.saturating_sub(self.cycle_length());
            if self.after.is_none() {
                self.pages = Some(self.passed);
                self.passed = 0;
                self.credit = self.credit.min(self.full_credit());
            }
        }
        Ok(Some(page))
    }

    /// Returns the credit that makes the whole list due.
    fn full_credit(&self) -> u64 {
        self.pages.unwrap_or_default().saturating_mul(self.cycle_length())
    }

    fn cycle_length(&self) -> u64 {
        self.cycle.max(self.pages.unwrap_or_default().saturating_mul(BETWEEN))
    }

    /// Moves the scan, after the first one, to where it would be by the clock.
    fn resume_by_clock(&mut self) {
        let (pages, now) = (self.passed, self.looked.unwrap_or_default());
        self.pages = Some(pages);
        let length = self.cycle_length();
        let way = u128::from(now.0 % length) * u128::from(pages);
        let at = usize::try_from(way / u128::from(length)).unwrap_or_default();
        self.credit = u64::try_from(way % u128::from(length)).unwrap_or_default();
        let ends = std::mem::take(&mut self.ends);
        self.after = at.checked_sub(1).and_then(|end| ends.into_iter().nth(end));
        self.passed = if self.after.is_some() { at as u64 } else { 0 };
    }
}
