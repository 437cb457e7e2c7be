//! The list of all owners, gone through once in a while and evenly: what it costs doesn't come at once, and does not
//! depend on how often somebody looks.

use crate::domain::ids::Owner;
use crate::domain::time::Millis;
use crate::store::{Store, StoreError};
use std::time::Duration;

/// Owners that are read at a time.
const PAGE: usize = 100;

/// Milliseconds between two pages at least: of very many owners it takes longer, and no more at a time.
const BETWEEN: u64 = 1_500;

/// How far the list is gone through.
///
/// The first time it is gone through at once; behind that it goes on where it would be, by the clock on the wall, if it
/// had always been on its way, so that nobody is left out where processes start often.
#[derive(Debug)]
pub struct Stroll {
    /// How long it takes to go through the list, in milliseconds; longer for one of very many pages.
    cycle: u64,
    /// When pages were counted last that are due.
    looked: Option<Millis>,
    /// Pages that are due, in parts of which a page has [`Stroll::length`].
    credit: u64,
    /// Pages of the list, as they were counted at its end.
    pages: Option<u64>,
    /// Pages since its beginning.
    passed: u64,
    /// The owner behind which it goes on; `None` = at the beginning.
    after: Option<Owner>,
    /// The last owners of the pages, the first time.
    ends: Vec<Owner>,
}

impl Stroll {
    /// Once in so long, a second at least; of more than 100 owners for each second and a half of it, as many more later.
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

    /// The whole list is due.
    pub fn begin_anew(&mut self) {
        *self = Self::new(Duration::from_millis(self.cycle));
    }

    /// It has not come to the end of the list for the first time.
    pub fn is_first(&self) -> bool {
        self.pages.is_none()
    }

    /// Counts what has become due; all of the list at most. A clock that was set back makes nothing due.
    pub fn count(&mut self, now: Millis) {
        let looked = self.looked.replace(now).unwrap_or(now);
        let Some(pages) = self.pages else { return };
        let came = u64::try_from(now.since(looked).as_millis()).unwrap_or(u64::MAX);
        self.credit = self.credit.saturating_add(came.saturating_mul(pages)).min(self.whole());
    }

    /// The next page that is due; `None`: that was all for now. After an error it comes again.
    pub async fn next(&mut self, store: &dyn Store) -> Result<Option<Vec<Owner>>, StoreError> {
        // What was added behind the end, as it was counted, is due at once: however fast the list grows, it is kept up with.
        if self.pages.is_some_and(|pages| self.passed < pages) && self.credit < self.length() {
            return Ok(None);
        }
        let first = self.is_first();
        // The first time the end of the list is the end.
        if first && self.passed > 0 && self.after.is_none() {
            self.take_place();
            return Ok(None);
        }
        let mut owners = store.all_owners().after(self.after.clone()).of(PAGE);
        let page = owners.next().await?.unwrap_or_default();
        self.passed += 1;
        self.after = owners.place();
        if first {
            self.ends.extend(self.after.clone());
        } else {
            self.credit = self.credit.saturating_sub(self.length());
            if self.after.is_none() {
                self.pages = Some(self.passed);
                self.passed = 0;
                self.credit = self.credit.min(self.whole());
            }
        }
        Ok(Some(page))
    }

    /// What makes all of the list due.
    fn whole(&self) -> u64 {
        self.pages.unwrap_or_default().saturating_mul(self.length())
    }

    fn length(&self) -> u64 {
        self.cycle.max(self.pages.unwrap_or_default().saturating_mul(BETWEEN))
    }

    /// Behind the first time: where it would be.
    fn take_place(&mut self) {
        let (pages, now) = (self.passed, self.looked.unwrap_or_default());
        self.pages = Some(pages);
        let length = self.length();
        let way = u128::from(now.0 % length) * u128::from(pages);
        let at = usize::try_from(way / u128::from(length)).unwrap_or_default();
        self.credit = u64::try_from(way % u128::from(length)).unwrap_or_default();
        let ends = std::mem::take(&mut self.ends);
        self.after = at.checked_sub(1).and_then(|end| ends.into_iter().nth(end));
        self.passed = if self.after.is_some() { at as u64 } else { 0 };
    }
}
