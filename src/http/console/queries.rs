//! Queries of pages, besides those of the API.
#![expect(dead_code, reason = "handlers take what they need by its name")]

use schemars::JsonSchema;

/// Query of a page with long values.
#[derive(JsonSchema)]
pub(in crate::http) struct RawQuery {
    /// Name of the value to return alone, as plain text.
    raw: Option<String>,
}

/// Query of the page that asks about an action on many jobs.
#[derive(JsonSchema)]
pub(in crate::http) struct BulkPageQuery {
    /// `pause`, `resume`, `redrive` or `cancel`.
    action: String,
    /// As the list of jobs has it, with the following.
    status: Option<String>,
    agent: Option<String>,
    q: Option<String>,
    code: Option<String>,
    session: Option<String>,
    since: Option<String>,
    until: Option<String>,
}

/// Query of the page of a turn.
#[derive(JsonSchema)]
pub(in crate::http) struct TurnPageQuery {
    /// `prompt` or `record`: returned alone, as plain text.
    raw: Option<String>,
    /// Number of the turn to compare with.
    against: Option<u64>,
}

/// Query of the page of a prompt that is built again.
#[derive(JsonSchema)]
pub(in crate::http) struct ReplayPageQuery {
    /// Path that the prompt is built without.
    without: Option<String>,
}

/// Query of a list with pages that begin at an offset.
#[derive(JsonSchema)]
pub(in crate::http) struct OffsetQuery {
    /// Entries before the page.
    offset: Option<u64>,
}

/// Query of the page of what waits for people.
#[derive(JsonSchema)]
pub(in crate::http) struct ApprovalsPageQuery {
    /// Entries before the page.
    offset: Option<u64>,
    /// Path of the page from which an approval was answered.
    answered: Option<String>,
}

/// Query of the page of an agent.
#[derive(JsonSchema)]
pub(in crate::http) struct AgentPageQuery {
    /// Session whose turns are listed.
    session: Option<String>,
    /// `next` of the list of turns before.
    cursor: Option<String>,
    /// Job whose input the form for a task begins with.
    again: Option<String>,
}

/// Query of the page of a value.
#[derive(JsonSchema)]
pub(in crate::http) struct LatticePageQuery {
    /// `true`: the value alone, as plain text.
    raw: Option<bool>,
    /// Keys, or uses, before the page.
    offset: Option<u64>,
    /// `1`: the turns that saw the value, in its stead.
    #[schemars(extend("enum" = ["1", "true", "false"]))]
    seen: Option<String>,
}

/// Query of the page of timers.
#[derive(JsonSchema)]
pub(in crate::http) struct TimersPageQuery {
    /// Agent whose timers are listed.
    agent: Option<String>,
    /// `true`: timers that fire no more, too.
    all: Option<bool>,
    /// Timers before the page.
    offset: Option<u64>,
}

/// Query of the page of the policy.
#[derive(JsonSchema)]
pub(in crate::http) struct PolicyPageQuery {
    /// Last agent of the page before.
    after: Option<String>,
}
