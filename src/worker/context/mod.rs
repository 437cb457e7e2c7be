//! Stage 4. In comes what a turn serves, out go the inputs of its prompt and who writes the record of it. It is read from
//! the store and the turn's tree; nothing is written.

pub(super) mod books;

use super::Worker;
use super::ground::Ground;
use super::lease::{Leased, Stop, transcript};
use crate::domain::agent::AgentRecord;
use crate::domain::turn::{Observed, Turn};
use crate::venue::context::PromptView;

/// The inputs of the prompt, and the record that theirs is a change of, read at the same time.
pub(super) async fn gather(
    worker: &Worker,
    leased: &mut Leased,
    ground: &Ground,
    agent: &AgentRecord,
    turn: &Turn,
) -> Result<Observed, Stop> {
    let setting = turn.setting();
    let known = if leased.run.version == 0 { Some(None) } else { leased.past.base.take() };
    let base = async {
        match known {
            Some(base) => Ok(base),
            None => books::base(&*worker.venue.store, &setting.owner, &setting.session, setting.turn).await,
        }
    };
    let transcript = transcript::all(worker, leased).await?.records();
    let view = PromptView { venue: &worker.venue, setting, agent, workspace: &ground.workspace };
    let (inputs, base) = futures::try_join!(view.inputs(transcript), base)?;
    leased.past.base = Some(base.clone());
    let scribe = books::scribe(worker, setting, agent, &inputs, base);
    Ok(Observed::Gathered(Box::new(inputs), Box::new(scribe)))
}
