//! Tools of the harness: what an agent does to its own context.

use super::calls::Round;
use crate::domain::agent::tool::tool_name;
use crate::domain::call::Outcome;
use crate::domain::call::ToolTarget;
use crate::domain::lattice::own::localise;
use crate::domain::load::{LoadChange, check_room};
use crate::domain::tools::outline;
use crate::domain::turn::{CallOutcome, ends};
use crate::domain::values::entities::allows;
use crate::venue::context::offered;
use crate::venue::operation::Spec;
use serde_json::{Value, json};

/// Operations that one search adds at most: each costs its schema in every further turn.
const FOUND: usize = 10;

/// `context_load`: checked against authority now, and again at every render.
pub(crate) fn load(round: &Round<'_>, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = ends::misfits(round.setting(), &ToolTarget::Load, arguments) {
        return misfit;
    }
    let mut arguments = arguments.clone();
    if let Err(error) = localise(&round.setting().owner, &mut arguments) {
        return CallOutcome::plain(Outcome::Denied, error.to_string());
    }
    let (path, change) = match LoadChange::load(&arguments, round.setting().state.goals.top().is_some()) {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    if let Err(denied) = round.caller.authority.permits("crud/read", &path) {
        return CallOutcome::plain(Outcome::Denied, denied.text("context_load"));
    }
    let LoadChange::Load(level, load) = &change else { return refused("not a load") };
    let room = check_room(round.loads.lock().at(*level), &path);
    if let Err(error) = room {
        return CallOutcome::plain(Outcome::Limit, format!("error: {error}"));
    }
    let text = format!("`{path}` is shown in your context from the next turn on, in at most {} bytes", load.budget);
    changed(round, change, &text)
}

/// `context_unload`.
pub(crate) fn unload(round: &Round<'_>, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = ends::misfits(round.setting(), &ToolTarget::Unload, arguments) {
        return misfit;
    }
    let mut arguments = arguments.clone();
    if let Err(error) = localise(&round.setting().owner, &mut arguments) {
        return CallOutcome::plain(Outcome::Denied, error.to_string());
    }
    let change = LoadChange::unload(&arguments, &round.loads.lock());
    match change {
        Ok(change) => changed(round, change, "unloaded from the next turn on"),
        Err(error) => refused(&error),
    }
}

/// `more_tools`: operations whose path or description has all the words, the shortest path first.
pub(crate) fn more_tools(round: &Round<'_>, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = ends::misfits(round.setting(), &ToolTarget::MoreTools, arguments) {
        return misfit;
    }
    let query = arguments["query"].as_str().unwrap_or_default().to_lowercase();
    let words: Vec<_> = query.split_whitespace().collect();
    let known = offered(&round.worker.venue, round.setting(), round.agent);
    let offered = |path: &str| known.iter().any(|known| known == path);
    let entities = round.entities();
    let catalog = &round.worker.venue.catalog;
    // What the agent has for some entities is offered for these or not at all.
    let scoped = round.setting().config.tools.iter().filter(|entry| !entry.entities().is_empty());
    let scoped: Vec<_> = scoped.filter_map(|entry| catalog.resolve(entry.operation()?)).collect();
    let elsewhere = |path: &str| entities.is_some() && scoped.iter().any(|found| found.spec.path == path);
    let mut found: Vec<_> = (catalog.operations())
        .filter(|found| entities.as_ref().is_none_or(|ids| allows(&found.entities, ids)))
        .filter(|found| !elsewhere(found.spec.path))
        .map(|registered| &registered.spec)
        .filter(|spec| !offered(spec.path))
        .filter(|spec| {
            let text = format!("{} {}", spec.path, spec.description).to_lowercase();
            words.iter().all(|word| text.contains(word))
        })
        .collect();
    found.sort_by_key(|spec| (spec.path.len(), spec.path));
    let more = found.len().saturating_sub(FOUND);
    found.truncate(FOUND);
    let shown = |spec: &&Spec| {
        let takes = outline(&spec.input);
        json!({"tool": tool_name(spec.path), "path": spec.path, "description": spec.description, "takes": takes})
    };
    let tools: Vec<_> = found.iter().map(shown).collect();
    let mut answer = json!({"found": tools, "offered": "from your next turn on"});
    if more > 0 {
        answer["more"] = format!("{more} more match; use other words").into();
    }
    let paths: Vec<_> = found.iter().map(|spec| spec.path.to_owned()).collect();
    let change = (!paths.is_empty()).then_some(LoadChange::Offer(paths));
    CallOutcome { change, ..CallOutcome::plain(Outcome::Ok, answer.to_string()) }
}

fn changed(round: &Round<'_>, change: LoadChange, text: &str) -> CallOutcome {
    round.change(&change);
    CallOutcome { change: Some(change), ..CallOutcome::plain(Outcome::Ok, text) }
}

/// What is wrong with what it was given.
fn refused(error: &str) -> CallOutcome {
    CallOutcome::plain(Outcome::Arguments, format!("error: {error}"))
}
