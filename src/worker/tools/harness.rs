//! Tools of the harness, by which an agent changes its own context.

use super::round::CallRound;
use crate::domain::agent::tool::tool_name;
use crate::domain::call::Outcome;
use crate::domain::call::ToolTarget;
use crate::domain::lattice::address::localise;
use crate::domain::lattice::catalog::catalog_path;
use crate::domain::load::{LoadChange, check_load_count};
use crate::domain::tools::outline;
use crate::domain::turn::{CallOutcome, endings};
use crate::domain::values::entities::allows;
use crate::venue::context::offered_tools;
use crate::venue::operation::offers::find_obstacle;
use crate::venue::operation::{CatalogView, RegisteredOperation, Spec, dispatch};
use serde_json::{Map, Value, json};

/// Operations that one search adds at most; each costs its schema in every later turn.
const FOUND_MAX: usize = 10;

/// Runs `context_load`: authority is checked now, and again at each render.
pub(crate) fn load(round: &CallRound<'_>, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = endings::check_arguments(round.turn_input(), &ToolTarget::Load, arguments) {
        return misfit;
    }
    let mut arguments = arguments.clone();
    if let Err(error) = localise(&round.turn_input().owner, &mut arguments) {
        return CallOutcome::from_text(Outcome::Denied, error.to_string());
    }
    let (path, change) = match LoadChange::from_load_call(&arguments, round.turn_input().state.goals.top().is_some()) {
        Ok(found) => found,
        Err(error) => return argument_error(&error.to_string()),
    };
    if let Err(denied) = round.caller.authority.permits("crud/read", &path) {
        return CallOutcome::from_text(Outcome::Denied, denied.model_text("context_load"));
    }
    let LoadChange::Load(level, load) = &change else { return argument_error("not a load") };
    let room = check_load_count(round.loads.lock().of_level(*level), &path);
    if let Err(error) = room {
        return CallOutcome::from_text(Outcome::Limit, format!("error: {error}"));
    }
    let text = format!("`{path}` is shown in your context from the next turn on, in at most {} bytes", load.budget);
    apply_change(round, change, &text)
}

/// Runs `context_unload`: removes a load from the context.
pub(crate) fn unload(round: &CallRound<'_>, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = endings::check_arguments(round.turn_input(), &ToolTarget::Unload, arguments) {
        return misfit;
    }
    let mut arguments = arguments.clone();
    if let Err(error) = localise(&round.turn_input().owner, &mut arguments) {
        return CallOutcome::from_text(Outcome::Denied, error.to_string());
    }
    let change = LoadChange::from_unload_call(&arguments, &round.loads.lock());
    match change {
        Ok(change) => apply_change(round, change, "unloaded from the next turn on"),
        Err(error) => argument_error(&error.to_string()),
    }
}

/// Runs `more_tools`: offers operations that match all the words, shortest path first, or those that are named.
pub(crate) fn more_tools(round: &CallRound<'_>, arguments: &Value) -> CallOutcome {
    if let Some(misfit) = endings::check_arguments(round.turn_input(), &ToolTarget::MoreTools, arguments) {
        return misfit;
    }
    let catalog = round.catalog();
    let table = offered_tools(catalog, round.turn_input(), round.agent);
    let offered = |path: &str| table.targets.iter().filter_map(ToolTarget::operation).any(|known| known == path);
    let entities = round.entities();
    // Operations offered for some entities are found only for those.
    let scoped = round.turn_input().config.tools.iter().filter(|entry| !entry.entities().is_empty());
    let scoped: Vec<_> = scoped.filter_map(|entry| catalog.resolve(entry.operation()?)).collect();
    let elsewhere = |path: &str| entities.is_some() && scoped.iter().any(|found| *found.spec.path == *path);
    let obstacle = |found: &RegisteredOperation| {
        if entities.as_ref().is_some_and(|ids| !allows(&found.entities, ids)) || elsewhere(&found.spec.path) {
            return Some("not for the entities of this request".to_owned());
        }
        find_obstacle(&round.caller.authority, found)
    };
    let takes = |spec: &Spec| outline(&table.guards.visible_schema(&spec.path, &spec.input));
    if let Some(named) = arguments["operations"].as_array() {
        return named_tools(catalog, named, &obstacle, &offered, &takes);
    }
    let query = arguments["query"].as_str().unwrap_or_default().to_lowercase();
    let words: Vec<_> = query.split_whitespace().collect();
    let mut found: Vec<_> = (catalog.operations())
        .filter(|found| obstacle(found).is_none())
        .map(|registered| &registered.spec)
        .filter(|spec| !offered(&spec.path))
        .filter(|spec| {
            let text = format!("{} {}", spec.path, spec.description).to_lowercase();
            words.iter().all(|word| text.contains(word))
        })
        .collect();
    found.sort_by_key(|spec| (spec.path.len(), &*spec.path));
    let more = found.len().saturating_sub(FOUND_MAX);
    found.truncate(FOUND_MAX);
    let shown = |spec: &&Spec| {
        let (path, about) = (&*spec.path, &spec.description);
        json!({"tool": tool_name(path), "path": path, "description": about, "takes": takes(spec)})
    };
    let tools: Vec<_> = found.iter().map(shown).collect();
    let mut answer = json!({"found": tools, "offered": "from your next turn on"});
    if more > 0 {
        answer["more"] = format!("{more} more match; use other words").into();
    }
    if tools.is_empty() && words.len() > 1 {
        answer["hint"] = "nothing has all these words, or you may not call it; use fewer words".into();
    }
    let paths: Vec<_> = found.iter().map(|spec| spec.path.to_string()).collect();
    let change = (!paths.is_empty()).then_some(LoadChange::Offer(paths));
    CallOutcome { change, ..CallOutcome::from_text(Outcome::Ok, answer.to_string()) }
}

/// Offers the operations of these paths as tools, or says why one can't be offered.
fn named_tools(
    catalog: &CatalogView,
    named: &[Value],
    obstacle: &dyn Fn(&RegisteredOperation) -> Option<String>,
    offered: &dyn Fn(&str) -> bool,
    takes: &dyn Fn(&Spec) -> Value,
) -> CallOutcome {
    let (mut added, mut not_added, mut paths) = (Vec::new(), Map::new(), Vec::new());
    for path in named.iter().filter_map(Value::as_str) {
        let found = match dispatch::find_operation(catalog, path) {
            Err(error) => Err(error.to_string()),
            Ok(found) if offered(&found.spec.path) => Err("it is among your tools already".to_owned()),
            Ok(_) if added.len() == FOUND_MAX => Err(format!("at most {FOUND_MAX} in one call")),
            Ok(found) => obstacle(found).map_or(Ok(found), Err),
        };
        let why = match found {
            Err(why) => why,
            Ok(found) => {
                let asked = catalog_path(path);
                added.push(json!({"tool": tool_name(&asked), "path": asked, "takes": takes(&found.spec)}));
                paths.push(asked);
                continue;
            }
        };
        not_added.insert(path.to_owned(), why.into());
    }
    let mut answer = json!({"added": added, "offered": "from your next turn on"});
    if !not_added.is_empty() {
        answer["notAdded"] = not_added.into();
    }
    let change = (!paths.is_empty()).then_some(LoadChange::Offer(paths));
    CallOutcome { change, ..CallOutcome::from_text(Outcome::Ok, answer.to_string()) }
}

fn apply_change(round: &CallRound<'_>, change: LoadChange, text: &str) -> CallOutcome {
    round.change_loads(&change);
    CallOutcome { change: Some(change), ..CallOutcome::from_text(Outcome::Ok, text) }
}

/// Makes the outcome of wrong arguments.
fn argument_error(error: &str) -> CallOutcome {
    CallOutcome::from_text(Outcome::Arguments, format!("error: {error}"))
}
