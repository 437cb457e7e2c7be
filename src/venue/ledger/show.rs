//! A past turn as callers see it.

use super::experiment::{ChangedInputs, Experiment, ExperimentError, TurnFacts, assemble_prompt};
use super::{PastTurn, may_read};
use crate::domain::authority::Authority;
use crate::domain::context::assemble::AssembledPrompt;
use crate::domain::context::digest::fields_hash;
use crate::domain::context::ledger::{HashForm, PromptLedger};
use crate::domain::context::record::RestoredRecord;
use crate::domain::ids::SessionKey;
use crate::domain::tools::OperationDirectory;
use crate::view::ledger::{AssembledRequestView, LedgerView, ModelRequestView, ReplayView, TurnRecordView, TurnView};

/// Why a prompt can't be assembled again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayError {
    /// The turn ended before there was a prompt, or a fork copied it without its prompt.
    #[error("turn `{0}` has no prompt: it ended before there was one, or a fork copied the turn without it")]
    NoPrompt(String),
    /// Parts of the record are gone.
    #[error("erased: {0}")]
    Erased(String),
    /// Nothing of the turn came from a path that is to be left out.
    #[error("turn `{turn}` has no part from `{path}`; {has}")]
    NoPart {
        /// Name of the turn.
        turn: String,
        /// The path to leave out.
        path: String,
        /// The parts that have a source.
        has: String,
    },
    /// The prompt repeats what was said under more authority than the reader's.
    #[error("the prompt of turn `{0}` is not shown: what was said in it ran under authority that you do not hold")]
    Withheld(String),
    /// The experiment is invalid.
    #[error(transparent)]
    Illegal(ExperimentError),
}

fn turn_name(session: &SessionKey, turn: u64) -> String {
    format!("{session}/{turn}")
}

/// Returns a turn with its record and its ledger; with its exact model request if `reader` is given and may see it.
pub fn turn_view(session: &SessionKey, past: &PastTurn, reader: Option<&Authority>) -> TurnView {
    let (mut erased, mut request, mut withheld) = (None, None, None);
    match past.seen.as_ref().map(|seen| &seen.inputs) {
        Some(Err(gone)) => erased = Some(gone.clone()),
        Some(Ok(inputs)) if reader.is_some_and(|reader| may_read(reader, inputs)) => {
            let assembled = assemble_prompt(inputs).ok();
            let assembled = assembled.map(|assembled| ModelRequestView::from(&assembled.request));
            request = Some(AssembledRequestView(assembled));
        }
        Some(Ok(_)) if reader.is_some() => {
            withheld = Some(ReplayError::Withheld(turn_name(session, past.turn)).to_string());
        }
        Some(Ok(_)) | None => {}
    }
    TurnView {
        name: turn_name(session, past.turn),
        agent: session.agent.clone(),
        session: session.session.clone(),
        turn: past.turn,
        record: past.record.as_ref().map(TurnRecordView::from),
        ledger: past.seen.as_ref().map(|seen| LedgerView::from(&seen.ledger)),
        erased,
        request,
        withheld,
        hidden: past.hidden,
    }
}

/// Returns the parts of a prompt that have a source, as a text.
fn describe_parts(ledger: &PromptLedger) -> String {
    let rows = ledger.rows.iter().filter(|row| row.key != "transcript");
    let named = rows.filter_map(|row| Some(format!("`{}` from `{}`", row.key, row.source.as_ref()?)));
    let named: Vec<_> = named.collect();
    if named.is_empty() {
        return "nothing in it came from a path".to_owned();
    }
    format!("it has {}", named.join(", "))
}

/// Assembles the turn's prompt again for a reader, with the changes of an experiment.
pub fn replay(
    session: &SessionKey,
    past: &PastTurn,
    reader: &Authority,
    experiment: &Experiment,
    facts: &TurnFacts,
    catalog: &impl OperationDirectory,
) -> Result<ReplayView, ReplayError> {
    let name = turn_name(session, past.turn);
    if past.hidden {
        return Err(ReplayError::Withheld(name));
    }
    let Some(RestoredRecord { inputs, ledger: recorded }) = &past.seen else { return Err(ReplayError::NoPrompt(name)) };
    let inputs = inputs.clone().map_err(|gone| ReplayError::Erased(gone.join(", ")))?;
    let changed = experiment.apply(inputs, catalog, facts).map_err(|error| match error {
        ExperimentError::NoPart(path) => {
            ReplayError::NoPart { turn: name.clone(), path, has: describe_parts(recorded) }
        }
        illegal => ReplayError::Illegal(illegal),
    })?;
    let ChangedInputs { inputs, incomplete } = changed;
    // Checked after the changes: another configuration may show other turns.
    if !may_read(reader, &inputs) {
        return Err(ReplayError::Withheld(name));
    }
    let (now, request, error) = match assemble_prompt(&inputs) {
        Ok(AssembledPrompt { mut ledger, request, .. }) => {
            if recorded.form == HashForm::Fields {
                // Both hashes must have the same form.
                ledger.prompt = fields_hash(&request, &inputs.tools);
                ledger.form = HashForm::Fields;
            }
            (ledger, Some(ModelRequestView::from(&request)), None)
        }
        Err(refused) => (refused.ledger, None, Some(refused.error.to_string())),
    };
    Ok(ReplayView {
        name,
        experiment: !experiment.is_replay(),
        recorded: recorded.prompt.clone(),
        replayed: now.prompt.clone(),
        same: recorded.prompt == now.prompt,
        error,
        before: LedgerView::from(recorded),
        ledger: LedgerView::from(&now),
        request,
        incomplete,
        warnings: Vec::new(),
    })
}
