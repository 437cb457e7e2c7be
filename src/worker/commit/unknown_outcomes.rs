//! Calls with an unknown outcome: the commit that records one also lists it for operators.

use crate::domain::call::Outcome;
use crate::domain::outcome::{CallPosition, UnknownCall, UnknownOutcome, legacy_outcome_id, outcome_id};
use crate::domain::session::TurnRecord;
use crate::process::telemetry::Metrics;
use crate::store::{Commit, DocWrite, keys};
use crate::venue::outcomes;
use crate::worker::lease::{LeasedSession, RunStop};
use crate::worker::state::Worker;

/// Returns the writes of outcomes that aren't listed yet: an amended turn may have listed some before.
pub(crate) async fn outcome_listings(
    worker: &Worker,
    leased: &LeasedSession,
    record: &TurnRecord,
) -> Result<Vec<DocWrite>, RunStop> {
    let (venue, lease) = (&worker.venue, &leased.lease);
    let unknown = Outcome::OutcomeUnknown.as_str();
    let mut writes = Vec::new();
    for (index, call) in (0..).zip(&record.calls).filter(|(_, call)| call.outcome == unknown) {
        let at = CallPosition { turn: record.turn, start: record.start, index };
        let id = outcome_id(&venue.key, &lease.owner, &lease.session, at);
        let of_old = legacy_outcome_id(&venue.key, &lease.owner, &lease.session, at);
        let places = [keys::outcome(&id), keys::outcome(&of_old)];
        let docs = venue.store.read(&lease.owner, &places).await?;
        let [listed, by_old] = &docs[..] else { continue };
        let by_old = by_old.decode::<UnknownOutcome>(&places[1]).ok().flatten();
        if listed.value.is_some() || by_old.is_some_and(|by_old| by_old.at >= record.start) {
            continue;
        }
        let version = listed.version;
        let outcome = UnknownOutcome {
            job: record.job.clone(),
            call: Some(UnknownCall {
                session: lease.session.clone(),
                turn: record.turn,
                index,
                tool: call.tool.clone(),
            }),
            ..UnknownOutcome::new(id, call.operation.clone(), venue.now())
        };
        writes.extend(outcomes::listing_writes(venue, &lease.owner, &outcome, version));
    }
    Ok(writes)
}

/// Counts the unknown outcomes that a commit lists.
pub(crate) fn count_outcomes(metrics: &Metrics, commit: &Commit) {
    for _ in commit.writes.iter().filter(|write| write.key.starts_with(keys::OUTCOMES)) {
        metrics.count_unknown_outcome("call");
    }
}
