//! Counts of the turns that one request causes: one document of the store for each origin and hour.

use crate::store::{Doc, DocKey, EditBatcher, GroupEdit, StoreError};

/// Increments a count by one.
#[derive(Debug)]
pub(crate) struct CountIncrement([DocKey; 1]);

impl CountIncrement {
    /// Makes the increment of the count at this key.
    pub(crate) const fn new(key: DocKey) -> Self {
        Self([key])
    }
}

/// Groups the counts of one process.
pub(crate) type OriginCounts = EditBatcher<CountIncrement>;

impl GroupEdit for CountIncrement {
    type Value = u32;
    type Answer = ();

    fn keys(&self) -> &[DocKey] {
        &self.0
    }

    fn decode(&self, _at: usize, doc: &Doc) -> Result<Option<u32>, StoreError> {
        Ok(Some(parse_count(doc)))
    }

    fn apply(&self, sheets: &mut [Option<u32>]) {
        for number in sheets.iter_mut() {
            *number = Some(number.unwrap_or_default().saturating_add(1));
        }
    }
}

/// Parses a count; a damaged one is zero.
pub(crate) fn parse_count(doc: &Doc) -> u32 {
    let text = doc.value.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
