//! The inputs of a prompt, from a view of what its turn serves: the one place where they are assembled.

use super::cache::ToolKey;
use super::fetch::ContextReader;
use super::{attachments, clear_scratch, pins, values};
use crate::domain::agent::tool::ToolEntry;
use crate::domain::agent::{AgentRecord, LoopKind};
use crate::domain::context::budget::PromptBudget;
use crate::domain::context::goals::GoalView;
use crate::domain::context::inputs::{Inputs, Layout, Moment, PromptFrame, ServedEvents};
use crate::domain::context::transcript_turn::TranscriptTurn;
use crate::domain::context::{attach, entry, fill};
use crate::domain::resource::HeldNamespaces;
use crate::domain::tools::{ToolTable, TurnEnds, resolve, resolve_with};
use crate::domain::turn::TurnInput;
use crate::domain::turn::scoped;
use crate::domain::values::Resolver;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::operation::pin::PinReader;
use crate::venue::operation::{Caller, CatalogView};
use crate::venue::resources::{self, scratchpad};
use crate::venue::workspace::Workspace;
use std::sync::Arc;

/// What a prompt is made for: a turn that runs, or the next one as a preview.
pub(crate) struct PromptView<'a> {
    pub(crate) venue: &'a Venue,
    /// The operations that the turn may offer and call.
    pub(crate) catalog: &'a CatalogView,
    pub(crate) setting: &'a TurnInput,
    /// The agent as it is configured, with the operations that its pins name.
    pub(crate) agent: &'a AgentRecord,
    pub(crate) workspace: &'a Workspace,
}

/// Returns what a turn begins with: its setting, its tree, and the agent with the operations that its pins name, if it
/// has any. The `c/` of a session that is new again is emptied.
pub(crate) async fn begin_turn(
    venue: &Venue,
    catalog: &CatalogView,
    agent: &AgentRecord,
    mut setting: Box<TurnInput>,
    is_new: bool,
) -> Result<(Box<TurnInput>, Workspace, Option<Box<AgentRecord>>), StoreError> {
    let workspace = venue.workspace(&setting.owner, setting.authority.home().clone()).await;
    if is_new {
        clear_scratch(&workspace, &*venue.store).await?;
    }
    let pins =
        PinReader { venue, catalog, owner: &setting.owner, authority: &setting.authority, workspace: &workspace };
    let pinned = pins::resolve_pins(pins, agent).await?.map(Box::new);
    if let Some(pinned) = &pinned {
        setting.config = Arc::new(pinned.config.clone());
    }
    Ok((setting, workspace, pinned))
}

impl PromptView<'_> {
    /// Returns the inputs of the prompt, after these turns of the session.
    pub(crate) async fn inputs(&self, transcript: Vec<Arc<TranscriptTurn>>) -> Result<Inputs, StoreError> {
        let Self { venue, catalog, setting, agent, workspace } = *self;
        let config = &setting.config;
        let caller = Caller {
            envelope: setting.mandate.envelope.clone(),
            ..Caller::new(setting.owner.clone(), format!("agent:{}", setting.session.agent), setting.authority.clone())
        };
        let resolver = values::resolver(venue, setting, agent).await?;
        let hides_values = config.hides_values();
        let reader = ContextReader { venue, catalog, caller: &caller, workspace, resolver: &resolver, hides_values };
        let bare = setting.plan.is_anonymous();
        let loads = if bare { Vec::new() } else { setting.state.goals.loads(&setting.state.loads) };
        let mut items = reader.fetch_items(entry::plan_agent_reads(&config.context, &agent.state, &loads)).await?;
        if !bare {
            let held = HeldNamespaces::from_authority(&setting.authority);
            items.extend(resources::context_items(venue, config, &held, workspace).await?);
        }
        items.extend(scratchpad::context_items(&*venue.store, &setting.owner, &setting.mandate.context_ids).await?);
        items.extend(
            setting
                .plan
                .handed_sections()
                .into_iter()
                .flat_map(|handed| scoped::handed_items(handed, &setting.authority)),
        );
        let frame = PromptFrame {
            agent: setting.session.agent.clone(),
            venue: venue.name.clone(),
            model: config.model.clone(),
            // The scratch space changes with the session and is no part of a prompt.
            authority: setting.authority.clone().without_home(),
            disclosure: setting.authority.disclosure(),
            bound: setting.mandate.envelope.bound.clone(),
            completion: setting.completion(),
            strict: config.strict_placeholders,
            aliases: config.uses_aliases(),
            bare,
            prompt: config.prompt_style(),
        };
        let served = ServedEvents {
            goals: GoalView::for_session(&setting.state.goals, &transcript, setting.plan.input(), frame.viewer()),
            last: setting.last.is_some(),
            ..setting.plan.served_events(&setting.state, &setting.mandate)
        };
        let wanted = attach::assets_to_look_up(&items, &served, &transcript);
        let attachments = attachments::look_up(venue, &caller, &config.model.provider, wanted).await?;
        let ratio = venue.prompts.ratio(&config.model);
        Ok(Inputs {
            frame,
            moment: Moment {
                turn: format!("{}/{}/{}", setting.owner, setting.session, setting.turn),
                date: venue.now().date(),
                budget: PromptBudget::for_models(config.context_budget, &config.model, ratio),
            },
            system: config.system_prompt.clone(),
            tools: self.tool_table(&resolver, scoped::instances(&items, &served), &transcript),
            values: fill::known_values(&config.system_prompt, &items, &resolver),
            items,
            transcript,
            served,
            attachments,
            layout: Layout::StableFirst(setting.state.prefixes.get(&setting.state.goals.active_id()).cloned()),
        })
    }

    /// Returns the tools of an agent's configuration; built once per version of it and per values that its bindings
    /// fill in. From a session's first task on, the tools that end a task stay: tools stand at the beginning of a
    /// prompt, and changing them costs the cache of the whole prompt.
    fn tool_table(&self, values: &Resolver, instances: Vec<String>, turns: &[Arc<TranscriptTurn>]) -> Arc<ToolTable> {
        let Self { venue, catalog, setting, agent, workspace: _ } = *self;
        if setting.plan.is_anonymous() || setting.last.is_some() {
            return Arc::new(ToolTable::for_anonymous_job(setting.ends()));
        }
        let (bound, mut ends) = (agent.config.has_turn_tools(), setting.ends());
        let had_task = turns.iter().any(|turn| turn.job.is_some());
        if agent.config.looping == LoopKind::Chat && !ends.task && had_task {
            ends = TurnEnds {
                output: agent.config.outputs.complete.as_ref().map(|output| &output.schema),
                ..TurnEnds::for_task(true)
            };
        }
        let (providers, held) = (&venue.catalog.resources, HeldNamespaces::from_authority(&setting.authority));
        let resources = providers.offered_tools(&agent.config, &setting.mandate.envelope, &held);
        let key = ToolKey {
            owner: setting.owner.clone(),
            agent: agent.id.clone(),
            created: agent.created,
            config_version: agent.config_version,
            task_open: ends.task,
            inner: ends.inner,
            output: ends.output.map(ToString::to_string).unwrap_or_default(),
            goal: ends.goal.map(ToString::to_string).unwrap_or_default(),
            found: setting.state.tools.clone(),
            operations: agent.config.tools.iter().filter_map(ToolEntry::operation).map(str::to_owned).collect(),
            resources: resources.iter().map(|tool| tool.spec.name.clone()).collect(),
            values: if bound { values.hash() } else { String::new() },
            instances,
            published: catalog.publication_serials(),
        };
        if let Some(known) = venue.prompts.tools.get(&key) {
            return known;
        }
        let table = resolve_with(&agent.config, &key.found, ends, values, catalog, &resources);
        let table = Arc::new(table.with_instances(&key.instances));
        venue.prompts.tools.insert(key, Arc::clone(&table));
        table
    }
}

/// Returns the tools that the model is offered, without values for what is bound.
pub(crate) fn offered_tools(catalog: &CatalogView, setting: &TurnInput, agent: &AgentRecord) -> ToolTable {
    resolve(&agent.config, &setting.state.tools, TurnEnds::for_task(false), &Resolver::default(), catalog)
}
