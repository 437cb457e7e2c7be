//! Stage 4: reads the inputs of a turn's prompt from the store and the turn's workspace, and prepares the writer of its
//! record. It writes nothing.

mod prompt_records;

use super::lease::{LeasedSession, RunStop, transcript};
use super::model::wallet::Wallet;
use super::state::Worker;
use super::turn_base::TurnBase;
use crate::domain::agent::AgentRecord;
use crate::domain::turn::{Observation, Turn};
use crate::venue::context::PromptView;

/// Finds the tools that a step of a pipeline may call, and opens the accounts that the steps are paid from. Nothing else is
/// read: there is no prompt.
pub(super) async fn offer(
    worker: &Worker,
    turn_base: &TurnBase,
    agent: &AgentRecord,
    turn: &Turn,
) -> Result<Observation, RunStop> {
    let TurnBase { workspace, catalog, .. } = turn_base;
    Wallet::open_accounts(worker, turn.input()).await?;
    let view = PromptView { venue: &worker.venue, catalog, turn_input: turn.input(), agent, workspace };
    Ok(Observation::Offered(view.step_tools().await?))
}

/// Reads the inputs of the prompt and, at the same time, the record that the new record is a change of.
pub(super) async fn gather(
    worker: &Worker,
    leased: &mut LeasedSession,
    turn_base: &TurnBase,
    agent: &AgentRecord,
    turn: &Turn,
) -> Result<Observation, RunStop> {
    let turn_input = turn.input();
    let known = if leased.run.version == 0 { Some(None) } else { leased.history.base.take() };
    let base = async {
        match known {
            Some(base) => Ok(base),
            None => {
                prompt_records::base(&*worker.venue.store, &turn_input.owner, &turn_input.session, turn_input.turn)
                    .await
            }
        }
    };
    let transcript = transcript::load_transcript(worker, leased).await?.records();
    let TurnBase { workspace, catalog, .. } = turn_base;
    let view = PromptView { venue: &worker.venue, catalog, turn_input, agent, workspace };
    let (inputs, base) = futures::try_join!(view.inputs(transcript), base)?;
    leased.history.base = Some(base.clone());
    let scribe = prompt_records::record_writer(worker, turn_input, agent, &inputs, base);
    Ok(Observation::Gathered(Box::new(inputs), Box::new(scribe)))
}
