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
use crate::domain::tools::{NOT_IN_CATALOG, ToolTable, TurnEnds, resolve, resolve_with};
use crate::domain::turn::TurnInput;
use crate::domain::turn::scoped;
use crate::domain::values::Resolver;
use crate::store::StoreError;
use crate::venue::Venue;
use crate::venue::a2a_client::A2aEndpoint;
use crate::venue::declared;
use crate::venue::mcp_client::McpEndpoint;
use crate::venue::operation::pin::PinReader;
use crate::venue::operation::{Caller, CatalogView};
use crate::venue::pinned::absence_reason;
use crate::venue::resources::{self, scratchpad};
use crate::venue::workspace::Workspace;
use std::sync::Arc;

/// What a prompt is made for: a turn that runs, or the next one as a preview.
pub(crate) struct PromptView<'a> {
    pub(crate) venue: &'a Venue,
    /// The operations that the turn may offer and call.
    pub(crate) catalog: &'a CatalogView,
    pub(crate) turn_input: &'a TurnInput,
    /// The agent as it is configured, with the operations that its pins name.
    pub(crate) agent: &'a AgentRecord,
    pub(crate) workspace: &'a Workspace,
}

/// Returns what a turn begins with: its input, its tree, and the agent with the operations that its pins name, if it
/// has any. In the tree of a session that has expired, `c/` is empty. The tools that the agent declares, or that records
/// below `o/` declare for it, are added to the operations of the turn.
pub(crate) async fn begin_turn(
    venue: &Venue,
    catalog: &mut CatalogView,
    agent: &AgentRecord,
    mut turn_input: Box<TurnInput>,
    is_expired: bool,
) -> Result<(Box<TurnInput>, Workspace, Option<Box<AgentRecord>>), StoreError> {
    let workspace = venue.workspace(&turn_input.owner, turn_input.authority.home().clone()).await;
    if is_expired {
        clear_scratch(&workspace, &*venue.store).await?;
    }
    *catalog = declared::view_for_agent(venue, &turn_input.owner, catalog.clone(), &agent.config).await?;
    let pins =
        PinReader { venue, catalog, owner: &turn_input.owner, authority: &turn_input.authority, workspace: &workspace };
    let pinned = pins::resolve_pins(pins, agent).await?.map(Box::new);
    if let Some(pinned) = &pinned {
        turn_input.config = Arc::new(pinned.config.clone());
    }
    Ok((turn_input, workspace, pinned))
}

impl PromptView<'_> {
    /// Returns the inputs of the prompt, after these turns of the session.
    pub(crate) async fn inputs(&self, transcript: Vec<Arc<TranscriptTurn>>) -> Result<Inputs, StoreError> {
        let Self { venue, catalog, turn_input, agent, workspace } = *self;
        let config = &turn_input.config;
        let caller = Caller {
            envelope: turn_input.mandate.envelope.clone(),
            ..Caller::new(
                turn_input.owner.clone(),
                format!("agent:{}", turn_input.session.agent),
                turn_input.authority.clone(),
            )
        };
        let resolver = values::resolver(venue, turn_input, agent).await?;
        let hides_values = config.hides_values();
        let reader = ContextReader { venue, catalog, caller: &caller, workspace, resolver: &resolver, hides_values };
        let bare = turn_input.plan.is_anonymous();
        let loads = if bare { Vec::new() } else { turn_input.state.goals.loads(&turn_input.state.loads) };
        let mut items = reader.fetch_items(entry::plan_agent_reads(&config.context, &agent.state, &loads)).await?;
        if !bare {
            let held = HeldNamespaces::from_authority(&turn_input.authority);
            items.extend(resources::context_items(venue, config, &held, workspace).await?);
        }
        items.extend(
            scratchpad::context_items(&*venue.store, &turn_input.owner, &turn_input.mandate.context_ids).await?,
        );
        items.extend(
            turn_input
                .plan
                .handed_sections()
                .into_iter()
                .flat_map(|handed| scoped::handed_items(handed, &turn_input.authority)),
        );
        let frame = PromptFrame {
            agent: turn_input.session.agent.clone(),
            venue: venue.name.clone(),
            model: config.model.clone(),
            // The scratch space changes with the session and is no part of a prompt.
            authority: turn_input.authority.clone().without_home(),
            disclosure: turn_input.authority.disclosure(),
            bound: turn_input.mandate.envelope.bound.clone(),
            completion: turn_input.completion(),
            strict: config.strict_placeholders,
            aliases: config.uses_aliases(),
            bare,
            prompt: config.prompt_style(),
        };
        let served = ServedEvents {
            goals: GoalView::for_session(&turn_input.state.goals, &transcript, turn_input.plan.input(), frame.viewer()),
            last: turn_input.last.is_some(),
            ..turn_input.plan.served_events(&turn_input.state, &turn_input.mandate)
        };
        let wanted = attach::assets_to_look_up(&items, &served, &transcript);
        let attachments = attachments::look_up(venue, &caller, &config.model.provider, wanted).await?;
        let ratio = venue.prompts.ratio(&turn_input.owner, &config.model);
        Ok(Inputs {
            frame,
            moment: Moment {
                turn: format!("{}/{}/{}", turn_input.owner, turn_input.session, turn_input.turn),
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
            layout: Layout::StableFirst(turn_input.state.prefixes.get(&turn_input.state.goals.active_id()).cloned()),
        })
    }

    /// Returns the tools that the steps of a pipeline may call: none, unless its kind is to call one.
    pub(crate) async fn step_tools(&self) -> Result<Arc<ToolTable>, StoreError> {
        let tool = self.agent.config.pipeline.as_ref().and_then(|pipeline| pipeline.tool.as_ref());
        if tool.is_none() {
            return Ok(Arc::new(ToolTable::new(Vec::new(), Vec::new(), Vec::new())));
        }
        let resolver = values::resolver(self.venue, self.turn_input, self.agent).await?;
        Ok(self.tool_table(&resolver, Vec::new(), &[]))
    }

    /// Returns the tools of an agent's configuration; built once per version of it and per values that its bindings
    /// fill in. From a session's first task on, the tools that end a task stay: tools stand at the beginning of a
    /// prompt, and changing them costs the cache of the whole prompt.
    fn tool_table(&self, values: &Resolver, instances: Vec<String>, turns: &[Arc<TranscriptTurn>]) -> Arc<ToolTable> {
        let Self { venue, catalog, turn_input, agent, workspace: _ } = *self;
        if turn_input.plan.is_anonymous() || turn_input.last.is_some() {
            return Arc::new(ToolTable::for_anonymous_job(turn_input.ends()));
        }
        let (bound, mut ends) = (agent.config.has_turn_tools(), turn_input.ends());
        let had_task = turns.iter().any(|turn| turn.job.is_some());
        if agent.config.looping == LoopKind::Chat && !ends.task && had_task {
            ends = TurnEnds {
                output: agent.config.outputs.complete.as_ref().map(|output| &output.schema),
                ..TurnEnds::for_task(true)
            };
        }
        let (providers, held) = (&venue.catalog.resources, HeldNamespaces::from_authority(&turn_input.authority));
        let resources = providers.offered_tools(&agent.config, &turn_input.mandate.envelope, &held);
        let key = ToolKey {
            owner: turn_input.owner.clone(),
            agent: agent.id.clone(),
            created: agent.created,
            config_version: agent.config_version,
            step: turn_input.plan.step().map(str::to_owned).unwrap_or_default(),
            task_open: ends.task,
            inner: ends.inner,
            output: ends.output.map(ToString::to_string).unwrap_or_default(),
            goal: ends.goal.map(ToString::to_string).unwrap_or_default(),
            found: turn_input.state.tools.clone(),
            operations: agent.config.tools.iter().filter_map(ToolEntry::operation).map(str::to_owned).collect(),
            resources: resources.iter().map(|tool| tool.spec.name.clone()).collect(),
            values: if bound { values.hash() } else { String::new() },
            instances,
            published: catalog.publication_serials(),
        };
        if let Some(known) = venue.prompts.tools.get(&key) {
            return self.with_reasons(known);
        }
        let table = resolve_with(&agent.config, &key.found, ends, values, catalog, &resources);
        let table = Arc::new(table.with_instances(&key.instances));
        venue.prompts.tools.insert(key, Arc::clone(&table));
        self.with_reasons(table)
    }

    /// Says of tools elsewhere that aren't in the catalogue why their server couldn't be asked.
    fn with_reasons(&self, table: Arc<ToolTable>) -> Arc<ToolTable> {
        let Self { venue, turn_input, agent, .. } = *self;
        let owner = &turn_input.owner;
        let reason_of = |path: &str| {
            let of_server = absence_reason::<McpEndpoint>(venue, owner, agent, path);
            of_server.or_else(|| absence_reason::<A2aEndpoint>(venue, owner, agent, path))
        };
        let missing = table.refused.iter().enumerate().filter(|(_, (_, reason))| reason == NOT_IN_CATALOG);
        let reasons: Vec<_> = missing.filter_map(|(at, (path, _))| Some((at, reason_of(path)?))).collect();
        if reasons.is_empty() {
            return table;
        }
        let mut told = ToolTable::clone(&table);
        for (at, reason) in reasons {
            told.refused[at].1 = reason;
        }
        Arc::new(told)
    }
}

/// Returns the tools that the model is offered, without values for what is bound.
pub(crate) fn offered_tools(catalog: &CatalogView, turn_input: &TurnInput, agent: &AgentRecord) -> ToolTable {
    resolve(&agent.config, &turn_input.state.tools, TurnEnds::for_task(false), &Resolver::default(), catalog)
}
