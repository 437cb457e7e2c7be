//! Stage 4: the writer of a turn's prompt record, and the record that the new one is a change of.

use crate::domain::agent::AgentRecord;
use crate::domain::context::inputs::Inputs;
use crate::domain::context::record::RecordWriter;
use crate::domain::context::record::manifest::{BaseManifest, stretch_start};
use crate::domain::context::record::part::PartNamer;
use crate::domain::context::record::period::Period;
use crate::domain::ids::{Owner, SessionKey};
use crate::domain::turn::TurnInput;
use crate::store::{Store, StoreError};
use crate::venue::ledger;
use crate::worker::state::Worker;
use std::sync::Arc;

/// Makes the writer of a turn's record. Parts belong to the week in which the turn started, by which its turns are
/// found.
pub(crate) fn record_writer(
    worker: &Worker,
    turn_input: &TurnInput,
    agent: &AgentRecord,
    inputs: &Inputs,
    base: Option<Arc<BaseManifest>>,
) -> RecordWriter {
    let (namer, period) = (PartNamer::new(&worker.venue.key, &turn_input.owner), Period::from_start(turn_input.start));
    let (tools, system) = worker.prompt_records.pack_prompt(&turn_input.owner, agent, inputs, &namer);
    RecordWriter { namer, period, base, tools, system }
}

/// Loads the newest record of a session, if the record of `turn` can be a change of it.
pub(crate) async fn base(
    store: &dyn Store,
    owner: &Owner,
    session: &SessionKey,
    turn: u64,
) -> Result<Option<Arc<BaseManifest>>, StoreError> {
    let base = ledger::walk(store, owner, session, stretch_start(turn), turn, |_| ()).await?;
    Ok(base.map(Arc::new))
}
