//! Routes of agents, their sessions and turns, and submissions.

use super::builders::{AGENT_ID, ALL_AGENTS, READS_AGENT, creation_route, operation_route, route};
use crate::domain::event::Submission;
use crate::http::agents;
use crate::http::describe::queries::{AgentsQuery, SessionQuery, StrictQuery, TurnQuery, TurnsQuery, WaitQuery};
use crate::http::route::{ArgumentNames, Route, RouteAccess, RouteSchema, schema_of};
use crate::http::turns;
use crate::venue::context::preview::Preview;
use crate::venue::ledger::experiment::Experiment;
use crate::view::agent::{
    AgentEndView, AgentPage, AgentSwitchView, AgentView, AppliedAgentView, ForkedAgentView, ReceiptView,
    UpdatedAgentView,
};
use crate::view::ledger::{ContextPreviewView, ReplayView, TurnListPage, TurnView};
use crate::view::session::{ForkedSessionView, SessionPage, SessionTurnsPage};
use crate::view::timer::TriggerView;

const ID: ArgumentNames = &[("id", "agentId")];
const SESSION: ArgumentNames = &[("id", "agentId"), ("session", "sessionId")];
/// The page of a list begins after `after`.
const SESSIONS: ArgumentNames = &[("id", "agentId"), ("", "offset")];
/// Covia's other names of a fork's source and target are not accepted here.
const FORK: ArgumentNames = &[("id", "agentId"), ("", "sourceId")];

pub(super) fn routes() -> Vec<Route> {
    [agent_routes(), live_routes(), sessions(), turns()].into_iter().flatten().collect()
}

fn agent_routes() -> Vec<Route> {
    vec![
        route("get", "/api/v1/agent-schema", RouteAccess::AnyCaller, agents::agent_schema)
            .with_summary("agentSchema", "The JSON Schema of agent files, draft 2020-12.")
            .with_media_answer(200, "The schema.", vec![("application/schema+json", RouteSchema::Map)]),
        route("get", "/api/v1/agents", RouteAccess::Holder("crud/read", ALL_AGENTS), agents::list)
            .with_value_reads()
            .with_summary("listAgents", "The owner's agents.")
            .with_query(schema_of::<AgentsQuery>())
            .with_answer(200, "Agents.", schema_of::<AgentPage>()),
        operation_route("get", "/api/v1/agents/{id}", READS_AGENT, "v/ops/agent/info", ID)
            .with_value_reads()
            .with_summary("getAgent", "What an agent is and does.")
            .with_answer(200, "The agent.", schema_of::<AgentView>())
            .with_refusals(&[404]),
        route("put", "/api/v1/agents/{id}", RouteAccess::Holder("agent/create", AGENT_ID), agents::apply)
            .with_summary(
                "applyAgent",
                "Make the agent as this configuration says, whatever it was before. Sessions and tasks stay. The body may also name stored configurations, as `config` and `definition` of `v/ops/agent/create` do.",
            )
            .with_query(schema_of::<StrictQuery>())
            .with_body(RouteSchema::Agent)
            .with_answer(201, "Created.", schema_of::<AppliedAgentView>())
            .with_answer(200, "Updated or unchanged.", schema_of::<AppliedAgentView>())
            .with_refusals(&[400]),
        operation_route("patch", "/api/v1/agents/{id}", RouteAccess::AnyCaller, "v/ops/agent/update", ID)
            .with_summary(
                "updateAgent",
                "Change keys of the configuration: null removes one, `state.config` is merged deeply.",
            )
            .with_query(schema_of::<StrictQuery>())
            .with_body(RouteSchema::Arguments("v/ops/agent/update", ID, &[]))
            .with_answer(200, "The agent as it is now.", schema_of::<UpdatedAgentView>())
            .with_refusals(&[400, 404, 409]),
        operation_route("delete", "/api/v1/agents/{id}", RouteAccess::AnyCaller, "v/ops/agent/delete", ID)
            .with_summary("deleteAgent", "End the agent: unfinished tasks are cancelled, new work is refused.")
            .with_answer(200, "It has ended.", schema_of::<AgentEndView>())
            .with_refusals(&[404, 409]),
        creation_route("/api/v1/agents/{id}/fork", RouteAccess::AnyCaller, "v/ops/agent/fork", ID)
            .with_summary(
                "forkAgent",
                "Make a new agent with the configuration and state of this one, and nothing that waits for it.",
            )
            .with_body(RouteSchema::Arguments("v/ops/agent/fork", FORK, &["to"]))
            .with_answer(201, "The new agent.", schema_of::<ForkedAgentView>())
            .with_refusals(&[400, 404, 409]),
    ]
}

fn live_routes() -> Vec<Route> {
    let refusals: &'static [u16] = &[400, 404, 409, 413, 429, 503];
    vec![
        operation_route("put", "/api/v1/agents/{id}/suspend", RouteAccess::AnyCaller, "v/ops/agent/suspend", ID)
            .with_summary("suspendAgent", "Stop the agent from running. It takes work; nothing that waits is lost.")
            .with_optional_body(RouteSchema::Arguments("v/ops/agent/suspend", ID, &[]))
            .with_answer(200, "It is suspended.", schema_of::<AgentSwitchView>())
            .with_refusals(&[404, 409]),
        operation_route("put", "/api/v1/agents/{id}/resume", RouteAccess::AnyCaller, "v/ops/agent/resume", ID)
            .with_summary("resumeAgent", "Let a suspended agent run again, with everything that has waited.")
            .with_answer(200, "It runs again.", schema_of::<AgentSwitchView>())
            .with_refusals(&[404, 409]),
        route("post", "/api/v1/agents/{id}/tasks", RouteAccess::Holder("agent/request", AGENT_ID), agents::task)
            .with_summary(
                "submitTask",
                "Submit a task. After the answer it is durable and reaches exactly one terminal state.",
            )
            .with_query(schema_of::<WaitQuery>())
            .with_idempotency_key()
            .with_body(schema_of::<Submission>())
            .with_answer(202, "Accepted; the job's address is in `Location`.", schema_of::<ReceiptView>())
            .with_answer(200, "Accepted before under this key.", schema_of::<ReceiptView>())
            .with_refusals(refusals),
        route("post", "/api/v1/agents/{id}/messages", RouteAccess::Holder("agent/message", AGENT_ID), agents::message)
            .with_summary("sendMessage", "Send a one-way message.")
            .with_idempotency_key()
            .with_body(RouteSchema::Message)
            .with_answer(202, "Accepted.", schema_of::<ReceiptView>())
            .with_answer(200, "Accepted before under this key.", schema_of::<ReceiptView>())
            .with_refusals(refusals),
        creation_route(
            "/api/v1/agents/{id}/timers",
            RouteAccess::Holder("agent/trigger", AGENT_ID),
            "v/ops/agent/trigger",
            ID,
        )
        .with_summary(
            "setTimer",
            "Give the agent a task, or a message, at a time. Under the same name it replaces the timer of that name.",
        )
        .with_idempotency_key()
        .with_body(RouteSchema::Arguments("v/ops/agent/trigger", ID, &["input"]))
        .with_answer(201, "It is set, or what was set is sent now.", schema_of::<TriggerView>())
        .with_refusals(&[400, 404, 409]),
    ]
}

fn sessions() -> Vec<Route> {
    vec![
        operation_route("get", "/api/v1/agents/{id}/sessions", READS_AGENT, "v/ops/agent/sessions", SESSIONS)
            .with_value_reads()
            .with_summary("listSessions", "Sessions of an agent, by id.")
            .with_answer(200, "A page.", schema_of::<SessionPage>())
            .with_refusals(&[400, 404]),
        route("get", "/api/v1/agents/{id}/sessions/{session}", READS_AGENT, agents::session)
            .with_value_reads()
            .with_summary("getSession", "The transcript of a session, turn by turn.")
            .with_query(schema_of::<SessionQuery>())
            .with_answer(200, "A page of turns.", schema_of::<SessionTurnsPage>())
            .with_refusals(&[400, 404]),
        creation_route("/api/v1/agents/{id}/sessions/{session}/fork", RouteAccess::AnyCaller, "v/ops/agent/session-fork", SESSION)
            .with_summary("forkSession", "A new session of the agent with the turns of this one up to and with `at`.")
            .with_body(RouteSchema::Arguments("v/ops/agent/session-fork", SESSION, &[]))
            .with_answer(201, "The new session.", schema_of::<ForkedSessionView>())
            .with_refusals(&[400, 404, 409]),
        route("post", "/api/v1/agents/{id}/context", READS_AGENT, turns::context)
            .with_value_reads()
            .with_summary("previewTurn", "What the next turn of a session would see, with its loads, transcript and pending results; without one the first turn of a new session. Changes nothing, asks no model.")
            .with_optional_body(schema_of::<Preview>())
            .with_answer(200, "The prompt, or the error with which the turn would fail.", schema_of::<ContextPreviewView>())
            .with_refusals(&[400, 404]),
    ]
}

fn turns() -> Vec<Route> {
    vec![
        route("get", "/api/v1/agents/{id}/turns", READS_AGENT, turns::list)
            .with_value_reads()
            .with_summary("listTurns", "Turns of an agent, the newest first.")
            .with_query(schema_of::<TurnsQuery>())
            .with_answer(200, "A page of turns.", schema_of::<TurnListPage>())
            .with_refusals(&[400, 404]),
        route("get", "/api/v1/agents/{id}/turns/{session}/{turn}", READS_AGENT, turns::get)
            .with_value_reads()
            .with_summary("getTurn", "What a turn did, and the ledger of what its model saw.")
            .with_query(schema_of::<TurnQuery>())
            .with_answer(200, "The turn.", schema_of::<TurnView>())
            .with_refusals(&[400, 404]),
        route("post", "/api/v1/agents/{id}/turns/{session}/{turn}/replay", READS_AGENT, turns::replay)
            .with_value_reads()
            .with_summary(
                "replayTurn",
                "Build a past prompt again, as it was or with changes. Commits nothing, asks no model.",
            )
            .with_optional_body(schema_of::<Experiment>())
            .with_answer(200, "The prompt as it was and as it was built again.", schema_of::<ReplayView>())
            .with_refusals(&[400, 404]),
    ]
}
