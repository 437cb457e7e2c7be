//! Routes of agents, their sessions and turns, and submissions.

use super::{AGENT, AGENTS, Access, READS_AGENT, Route, makes, route, runs};
use crate::domain::event::Submission;
use crate::http::agents;
use crate::http::describe::answers::{AgentShown, Agents, Applied, Receipt, TimerSet};
use crate::http::describe::queries::{AgentsQuery, SessionQuery, Strict, TurnQuery, TurnsQuery, Wait};
use crate::http::route::{Given, Shape, of};
use crate::http::turns;
use crate::venue::context::preview::Preview;
use crate::venue::ledger::experiment::Experiment;

const ID: Given = &[("id", "agentId")];
const SESSION: Given = &[("id", "agentId"), ("session", "sessionId")];
/// The page of a list begins after `after`.
const SESSIONS: Given = &[("id", "agentId"), ("", "offset")];
/// Covia's other names of a fork's source and target are not accepted here.
const FORK: Given = &[("id", "agentId"), ("", "sourceId")];

pub(super) fn routes() -> Vec<Route> {
    [kept(), live(), sessions(), turns()].into_iter().flatten().collect()
}

fn kept() -> Vec<Route> {
    vec![
        route("get", "/api/v1/agent-schema", Access::Caller, agents::described)
            .says("agentSchema", "The JSON Schema of agent files, draft 2020-12.")
            .sends(200, "The schema.", vec![("application/schema+json", Shape::Map)]),
        route("get", "/api/v1/agents", Access::Holder("crud/read", AGENTS), agents::list)
            .reads()
            .says("listAgents", "The owner's agents.")
            .asks(of::<AgentsQuery>())
            .answers(200, "Agents.", of::<Agents>()),
        runs("get", "/api/v1/agents/{id}", READS_AGENT, "v/ops/agent/info", ID)
            .reads()
            .says("getAgent", "What an agent is and does.")
            .answers(200, "The agent.", of::<AgentShown>())
            .fails(&[404]),
        route("put", "/api/v1/agents/{id}", Access::Holder("agent/create", AGENT), agents::apply)
            .says(
                "applyAgent",
                "Make the agent as this configuration says, whatever it was before. Sessions and tasks stay.",
            )
            .asks(of::<Strict>())
            .takes(Shape::Agent)
            .answers(201, "Created.", of::<Applied>())
            .answers(200, "Updated or unchanged.", of::<Applied>())
            .fails(&[400]),
        runs("patch", "/api/v1/agents/{id}", Access::Caller, "v/ops/agent/update", ID)
            .says("updateAgent", "Change keys of the configuration: null removes one, `state.config` is merged deeply.")
            .asks(of::<Strict>())
            .takes(Shape::Arguments("v/ops/agent/update", ID, &[]))
            .answers(200, "`agentId`, `updated`, `configVersion`, `warnings`.", Shape::Map)
            .fails(&[400, 404, 409]),
        runs("delete", "/api/v1/agents/{id}", Access::Caller, "v/ops/agent/delete", ID)
            .says("deleteAgent", "End the agent: unfinished tasks are cancelled, new work is refused.")
            .answers(200, "`agentId`, `cancelled`.", Shape::Map)
            .fails(&[404, 409]),
        makes("post", "/api/v1/agents/{id}/fork", Access::Caller, "v/ops/agent/fork", ID)
            .says(
                "forkAgent",
                "Make a new agent with the configuration and state of this one, and nothing that waits for it.",
            )
            .takes(Shape::Arguments("v/ops/agent/fork", FORK, &["to"]))
            .answers(201, "`agentId`, `from`.", Shape::Map)
            .fails(&[400, 404, 409]),
    ]
}

fn live() -> Vec<Route> {
    let refusals: &'static [u16] = &[400, 404, 409, 413, 429, 503];
    vec![
        runs("put", "/api/v1/agents/{id}/suspend", Access::Caller, "v/ops/agent/suspend", ID)
            .says("suspendAgent", "Stop the agent from running. It takes work; nothing that waits is lost.")
            .may_take(Shape::Arguments("v/ops/agent/suspend", ID, &[]))
            .answers(200, "`agentId`, `status`, `error`.", Shape::Map)
            .fails(&[404, 409]),
        runs("put", "/api/v1/agents/{id}/resume", Access::Caller, "v/ops/agent/resume", ID)
            .says("resumeAgent", "Let a suspended agent run again, with everything that has waited.")
            .answers(200, "`agentId`, `status`.", Shape::Map)
            .fails(&[404, 409]),
        route("post", "/api/v1/agents/{id}/tasks", Access::Holder("agent/request", AGENT), agents::task)
            .says("submitTask", "Submit a task. After the answer it is durable and reaches exactly one terminal state.")
            .asks(of::<Wait>())
            .keyed()
            .takes(of::<Submission>())
            .answers(202, "Accepted; the job's address is in `Location`.", of::<Receipt>())
            .answers(200, "Accepted before under this key.", of::<Receipt>())
            .fails(refusals),
        route("post", "/api/v1/agents/{id}/messages", Access::Holder("agent/message", AGENT), agents::message)
            .says("sendMessage", "Send a one-way message.")
            .keyed()
            .takes(Shape::Message)
            .answers(202, "Accepted.", of::<Receipt>())
            .answers(200, "Accepted before under this key.", of::<Receipt>())
            .fails(refusals),
        makes("post", "/api/v1/agents/{id}/timers", Access::Holder("agent/trigger", AGENT), "v/ops/agent/trigger", ID)
            .says("setTimer", "Give the agent a task, or a message, at a time. Under the same name it replaces the timer of that name.")
            .keyed()
            .takes(Shape::Arguments("v/ops/agent/trigger", ID, &["input"]))
            .answers(201, "It is set.", of::<TimerSet>())
            .fails(&[400, 404, 409]),
    ]
}

fn sessions() -> Vec<Route> {
    vec![
        runs("get", "/api/v1/agents/{id}/sessions", READS_AGENT, "v/ops/agent/sessions", SESSIONS)
            .reads()
            .says("listSessions", "Sessions of an agent, by id.")
            .answers(200, "`sessions`; `next` is `after` of the next page.", Shape::Map)
            .fails(&[400, 404]),
        route("get", "/api/v1/agents/{id}/sessions/{session}", READS_AGENT, agents::session)
            .reads()
            .says("getSession", "The transcript of a session, turn by turn.")
            .asks(of::<SessionQuery>())
            .answers(200, "`turns`; `next` is `after` of the next page.", Shape::Map)
            .fails(&[400, 404]),
        makes("post", "/api/v1/agents/{id}/sessions/{session}/fork", Access::Caller, "v/ops/agent/session-fork", SESSION)
            .says("forkSession", "A new session of the agent with the turns of this one up to and with `at`.")
            .takes(Shape::Arguments("v/ops/agent/session-fork", SESSION, &[]))
            .answers(201, "`sessionId`: the new one.", Shape::Map)
            .fails(&[400, 404, 409]),
        route("post", "/api/v1/agents/{id}/context", READS_AGENT, turns::context)
            .reads()
            .says("previewTurn", "What the next turn of a session would see, with its loads, transcript and pending results; without one the first turn of a new session. Changes nothing, asks no model.")
            .may_take(of::<Preview>())
            .answers(200, "`ledger` and `request`, or the `error` with which the turn would fail.", Shape::Map)
            .fails(&[400, 404]),
    ]
}

fn turns() -> Vec<Route> {
    vec![
        route("get", "/api/v1/agents/{id}/turns", READS_AGENT, turns::list)
            .reads()
            .says("listTurns", "Turns of an agent, the newest first.")
            .asks(of::<TurnsQuery>())
            .answers(
                200,
                "`turns`: turn records with their `name` and `session`; `next`: `cursor` of the next page.",
                Shape::Map,
            )
            .fails(&[400, 404]),
        route("get", "/api/v1/agents/{id}/turns/{session}/{turn}", READS_AGENT, turns::get)
            .reads()
            .says("getTurn", "What a turn did, and the ledger of what its model saw.")
            .asks(of::<TurnQuery>())
            .answers(200, "`record`, `ledger`, `request`; `erased` names components whose content is gone.", Shape::Map)
            .fails(&[400, 404]),
        route("post", "/api/v1/agents/{id}/turns/{session}/{turn}/replay", READS_AGENT, turns::replay)
            .reads()
            .says("replayTurn", "Build a past prompt again, as it was or with changes. Commits nothing, asks no model.")
            .may_take(of::<Experiment>())
            .answers(
                200,
                "`recorded` and `replayed` hash, whether they are the `same`, both ledgers and the request; `incomplete` \
                 says what was not looked through.",
                Shape::Map,
            )
            .fails(&[400, 404]),
    ]
}
