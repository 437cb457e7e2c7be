//! Routes of the console: pages for people, and the forms on them. They need what the API's routes for the same need.

use super::builders::{AGENT_ID, ALL_AGENTS, ALL_JOBS, JOB_ID, READS_AGENT, route};
use crate::http::describe::queries::{AgentsQuery, JobsQuery};
use crate::http::route::{Route, RouteAccess, RouteSchema, schema_of};
use crate::http::{console, sse};

/// Media type of a form.
const FORM: &str = "application/x-www-form-urlencoded";

pub(super) fn routes() -> Vec<Route> {
    [job_routes(), agent_routes(), other_routes(), holding_routes(), session_routes()].into_iter().flatten().collect()
}

fn job_routes() -> Vec<Route> {
    let job = |ability| RouteAccess::Holder(ability, JOB_ID);
    vec![
        route("get", "/", RouteAccess::AnyCaller, console::jobs)
            .with_value_reads()
            .with_query(schema_of::<JobsQuery>()),
        route("get", "/jobs/bulk", RouteAccess::Holder("crud/read", ALL_JOBS), console::ask_bulk)
            .with_value_reads()
            .with_query(schema_of::<console::queries::BulkPageQuery>()),
        route("post", "/jobs/bulk", RouteAccess::Holder("crud/read", ALL_JOBS), console::act_on_matching)
            .with_media_body(FORM, RouteSchema::Map),
        route("post", "/jobs/selected", RouteAccess::Holder("crud/read", ALL_JOBS), console::act_on_selected)
            .with_media_body(FORM, RouteSchema::Map),
        route("get", "/jobs/{id}", RouteAccess::AnyCaller, console::job)
            .with_value_reads()
            .with_query(schema_of::<console::queries::RawQuery>()),
        route("get", "/jobs/{id}/events", RouteAccess::AnyCaller, sse::stream),
        route("post", "/jobs/{id}/cancel", job("job/cancel"), console::cancel_job),
        route("post", "/jobs/{id}/pause", job("job/pause"), console::pause_job),
        route("post", "/jobs/{id}/resume", job("job/resume"), console::resume_job),
        route("post", "/jobs/{id}/redrive", job("job/redrive"), console::redrive_job),
        route("post", "/jobs/{id}/delete", job("job/delete"), console::delete_job),
    ]
}

fn agent_routes() -> Vec<Route> {
    let turn = "/agents/{id}/turns/{session}/{turn}";
    vec![
        route("get", "/agents", RouteAccess::Holder("crud/read", ALL_AGENTS), console::agents)
            .with_value_reads()
            .with_query(schema_of::<AgentsQuery>()),
        route("get", "/agents/{id}", READS_AGENT, console::agent)
            .with_value_reads()
            .with_query(schema_of::<console::queries::AgentPageQuery>()),
        route("get", turn, READS_AGENT, console::turn)
            .with_value_reads()
            .with_query(schema_of::<console::queries::TurnPageQuery>()),
        route("get", "/agents/{id}/turns/{session}/{turn}/replay", READS_AGENT, console::replay)
            .with_value_reads()
            .with_query(schema_of::<console::queries::ReplayPageQuery>()),
        route("post", "/agents/{id}/suspend", RouteAccess::AnyCaller, console::suspend_agent),
        route("post", "/agents/{id}/resume", RouteAccess::AnyCaller, console::resume_agent),
        route("post", "/agents/{id}/tasks", RouteAccess::Holder("agent/request", AGENT_ID), console::give_task)
            .with_media_body(FORM, schema_of::<console::TaskForm>()),
    ]
}

fn other_routes() -> Vec<Route> {
    let offset = || schema_of::<console::queries::OffsetQuery>();
    vec![
        route("get", "/approvals", RouteAccess::AnyCaller, console::approvals)
            .with_value_reads()
            .with_query(schema_of::<console::queries::ApprovalsPageQuery>()),
        route("post", "/approvals/{id}", RouteAccess::AnyCaller, console::answer_approval)
            .with_media_body(FORM, RouteSchema::Map),
        route("get", "/failures", RouteAccess::AnyCaller, console::failures).with_value_reads().with_query(offset()),
        route("get", "/lattice", RouteAccess::AnyCaller, console::lattice_root),
        route("get", "/lattice/{*path}", RouteAccess::AnyCaller, console::lattice)
            .with_value_reads()
            .with_query(schema_of::<console::queries::LatticePageQuery>()),
        route("post", "/lattice/{*path}", RouteAccess::AnyCaller, console::change_value)
            .with_value_reads()
            .with_media_body(FORM, schema_of::<console::LatticeForm>()),
        route("get", "/fleet", RouteAccess::Operator, console::fleet),
    ]
}

/// Routes of what an owner has set up: timers, secrets, policy.
fn holding_routes() -> Vec<Route> {
    vec![
        route("get", "/timers", RouteAccess::AnyCaller, console::timers)
            .with_query(schema_of::<console::queries::TimersPageQuery>()),
        route("post", "/timers/{id}/cancel", RouteAccess::AnyCaller, console::cancel_timer)
            .with_media_body(FORM, schema_of::<console::TimerForm>()),
        route("get", "/policy", RouteAccess::AnyCaller, console::policy)
            .with_value_reads()
            .with_query(schema_of::<console::queries::PolicyPageQuery>()),
        route("get", "/secrets", RouteAccess::AnyCaller, console::secrets),
        route("post", "/secrets", RouteAccess::AnyCaller, console::set_secret)
            .with_media_body(FORM, schema_of::<console::SecretForm>()),
        route("post", "/secrets/{name}/delete", RouteAccess::AnyCaller, console::delete_secret),
    ]
}

/// Routes that a browser needs before somebody has signed in.
fn session_routes() -> Vec<Route> {
    vec![
        route("get", "/console.css", RouteAccess::Public, console::style),
        route("get", "/console.js", RouteAccess::Public, console::script),
        route("get", "/sign-in", RouteAccess::Public, console::sign_in_form),
        route("post", "/sign-in", RouteAccess::Public, console::sign_in)
            .with_media_body(FORM, schema_of::<console::SignInForm>()),
        route("post", "/sign-out", RouteAccess::Public, console::sign_out),
        // Also of a caller whose last choice is refused everywhere by now.
        route("post", "/owner", RouteAccess::Public, console::switch_owner)
            .with_media_body(FORM, schema_of::<console::OwnerForm>()),
    ]
}
