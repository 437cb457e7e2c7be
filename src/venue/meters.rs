//! Meters of rate limits: the changes of all calls of one process are grouped.

use crate::domain::rate::{self, Meter, RateLimit, RateWait, RatedCall};
use crate::domain::time::Millis;
use crate::store::{Doc, DocKey, EditBatcher, GroupEdit, StoreError};

/// Change that a call makes to the meters of its limits.
#[derive(Debug)]
pub struct Metering {
    pub(crate) limits: Vec<RateLimit>,
    pub(crate) meters: Vec<DocKey>,
    pub(crate) now: Millis,
    pub(crate) step: MeterStep,
}

/// What a call does to the meters of its limits.
#[derive(Debug, Clone)]
pub(crate) enum MeterStep {
    /// Books the call.
    Book(RatedCall),
    /// Keeps the booking until a time.
    Renew { id: String, until: Millis },
    /// Replaces the booking by the tokens that were used.
    Settle { call: RatedCall, used: u64 },
}

/// Groups the changes of all calls of one process.
pub type Meters = EditBatcher<Metering>;

impl GroupEdit for Metering {
    type Value = Meter;
    /// Calls to wake because a place is free; a call that waits changes the meters if it is the first in line.
    type Answer = Result<Vec<String>, RateWait>;

    fn keys(&self) -> &[DocKey] {
        &self.meters
    }

    fn decode(&self, at: usize, doc: &Doc) -> Result<Option<Meter>, StoreError> {
        doc.decode(&self.meters[at])
    }

    fn apply(&self, sheets: &mut [Option<Meter>]) -> Self::Answer {
        let were_there: Vec<_> = sheets.iter().map(Option::is_some).collect();
        let mut meters: Vec<Meter> = sheets.iter_mut().map(|sheet| sheet.take().unwrap_or_default()).collect();
        let answer = match &self.step {
            MeterStep::Book(call) => rate::book(&self.limits, &mut meters, call, self.now).map(|()| Vec::new()),
            MeterStep::Renew { id, until } => {
                rate::renew(&mut meters, id, *until);
                Ok(Vec::new())
            }
            MeterStep::Settle { call, used } => Ok(rate::settle(&self.limits, &mut meters, call, *used, self.now)),
        };
        for ((sheet, meter), was_there) in sheets.iter_mut().zip(meters).zip(were_there) {
            *sheet = Some(meter).filter(|meter| was_there || *meter != Meter::default());
        }
        answer
    }
}
