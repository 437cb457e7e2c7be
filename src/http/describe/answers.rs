//! Schemas of answers.
#![expect(dead_code, reason = "they are described; answers are built where they are sent")]
#![expect(clippy::struct_field_names, reason = "keys of answers")]

use crate::domain::job::JobStatus;
use crate::domain::timer::{CatchUpPolicy, OverlapPolicy, TimerKind};
use schemars::JsonSchema;
use serde_json::{Map, Value};

type Object = Map<String, Value>;

/// What went wrong.
#[derive(JsonSchema)]
pub(in crate::http) struct Problem {
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    /// The same as `detail`.
    error: String,
    /// `QUOTA_EXCEEDED` with 507: the owner keeps as much as it may; delete something, or ask an operator for more.
    code: Option<String>,
    /// What is wrong with the data that was sent.
    errors: Option<Vec<Misfit>>,
}

/// What is wrong with data that was sent, and where.
#[derive(JsonSchema)]
struct Misfit {
    /// JSON pointer into the data; empty for all of it.
    pointer: String,
    /// What kind of rule it breaks.
    #[schemars(extend("enum" = ["syntax", "limit", "type", "missing", "unknown", "rule"]))]
    code: String,
    reason: String,
    expected: Option<String>,
    found: Option<String>,
    /// The nearest right form, as JSON.
    hint: Option<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Status {
    #[schemars(extend("const" = "OK"))]
    status: String,
    name: String,
    version: String,
    url: String,
    did: String,
    access: Object,
    stats: Object,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Did {
    id: String,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Live {
    status: String,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Readiness {
    status: String,
    /// Since when the queue is away; absent while it answers.
    queue: Option<String>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Job {
    id: String,
    op: String,
    status: JobStatus,
    agent: Option<String>,
    session: Option<String>,
    /// The producer's id.
    event: Option<String>,
    /// Milliseconds since 1970.
    created: u64,
    /// Milliseconds since 1970.
    updated: u64,
    input: Option<Value>,
    /// Of a job that has not ended and does not run: why.
    waiting: Option<Waiting>,
    /// Of a task of which a turn runs now.
    running: Option<RunningTurn>,
    caller: Option<String>,
    parent: Option<String>,
    /// The failed job that it drives again.
    redrive_of: Option<String>,
    /// Of a failed job: the job as which it was driven again.
    redriven_as: Option<String>,
    /// Of a cancelled job: what can be done.
    advice: Option<String>,
    /// Absent is 0.
    #[schemars(extend("enum" = [-1, 1]))]
    priority: Option<i8>,
    outbound: Option<Outbound>,
    spend: Option<Spend>,
    output: Option<Value>,
    /// The output is a text that the model's limit of tokens cut off.
    truncated: Option<bool>,
    error: Option<String>,
    error_code: Option<String>,
    /// Of an operation that ended with `OUTCOME_UNKNOWN`: what a person has found out.
    settled: Option<Settled>,
    /// `input`, `output`, `error` and `waiting` are left out: the job ran under authority that the reader does not
    /// hold, and he did not ask for it.
    hidden: Option<String>,
}

/// The turn that runs, its worker, and when that took the session, in milliseconds since 1970.
#[derive(JsonSchema)]
struct RunningTurn {
    turn: u64,
    worker: String,
    since: u64,
}

/// Why work does not go on, with what belongs to a reason of its kind.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Waiting {
    /// `not-admitted`, `due`, `no-worker`, `slots-taken`, `owner-share`, `agent-limit`, `owner-limit`, `suspended`,
    /// `paused`, `behind` (an earlier task of its session), `person`, `child`, `result-due`, `external-worker`,
    /// `timer`, `provider-limit`, `spending-limit`, `backing-off`, `not-published` or `other`. Of jobs and agents that the
    /// reader may not read nothing else is told.
    kind: String,
    /// In words.
    reason: String,
    /// Milliseconds since 1970: it goes on then by itself.
    until: Option<u64>,
    /// What can be done about it.
    advice: Option<String>,
    agent: Option<String>,
    /// The child, or the earlier task.
    job: Option<String>,
    /// What that one waits for: a reason like this one.
    waiting: Option<Object>,
    /// Those that people have to answer.
    approvals: Option<Vec<String>>,
    /// Who has paused it.
    by: Option<String>,
    queue: Option<String>,
    limit: Option<u64>,
    tries: Option<u32>,
}

/// Of a job of an external worker: its queue, its times in milliseconds since 1970, the first and the last sign of its
/// worker, and answers that changed nothing.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Outbound {
    queue: Option<String>,
    start_by: Option<u64>,
    heartbeat_seconds: Option<u64>,
    deadline: Option<u64>,
    started: Option<u64>,
    heartbeat: Option<u64>,
    ignored: Option<Vec<Object>>,
}

/// What the job has used as of its last commit (own), and together with the jobs under it (tree). Absent = not known.
#[derive(JsonSchema)]
struct Spend {
    own: Option<Spent>,
    tree: Option<Spent>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Spent {
    /// Model calls.
    calls: u64,
    /// Tokens of their prompts.
    input: u64,
    /// Tokens of their replies.
    output: u64,
    /// Of `input`: read from providers' caches.
    cache_read: Option<u64>,
    /// Of `input`: written to providers' caches.
    cache_write: Option<u64>,
    /// Of `output`: reasoning.
    reasoning: Option<u64>,
    /// US dollars; absent where no call has a price.
    cost: Option<f64>,
    /// Calls whose model has no price: they are not in `cost`.
    unpriced: Option<u64>,
    /// Of a tree: the jobs under the job.
    jobs: Option<u64>,
    /// Of a tree: there are more than were looked at (1,000 a request).
    partial: Option<bool>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Page {
    items: Vec<Value>,
    /// Absent where a list is filtered: it is not counted.
    total: Option<u64>,
    /// Absent where a list is filtered: it goes on with `cursor`.
    offset: Option<u64>,
    limit: u64,
    /// Where there is more: the `offset` of the next page, or of a filtered list its `cursor`; else null.
    #[schemars(extend("type" = ["integer", "string", "null"]))]
    next: Option<Value>,
    /// Of a filtered list with more behind it: it was looked through for jobs accepted since then, in milliseconds since
    /// 1970.
    #[schemars(extend("type" = ["integer", "null"]))]
    looked_back_to: Option<u64>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Said {
    job: String,
    event: String,
    #[schemars(extend("const" = "queued"))]
    status: String,
    /// Messages to the job that no turn has read.
    queue_depth: u64,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Agents {
    agents: Vec<AgentRow>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct AgentRow {
    agent_id: String,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct AgentShown {
    agent_id: String,
    status: String,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Applied {
    agent_id: String,
    #[schemars(extend("enum" = ["created", "updated", "unchanged"]))]
    result: String,
    status: String,
    config_version: u64,
    /// Providers, operations and abilities that the configuration names and the venue doesn't know.
    warnings: Vec<String>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Receipt {
    /// The job of a task; of a message its event.
    id: String,
    /// The id that the producer gave, or got.
    event: String,
    agent: String,
    session: String,
    duplicate: bool,
    job: Option<String>,
    ignored: Option<Ignored>,
    status: Option<JobStatus>,
    output: Option<Value>,
    truncated: Option<bool>,
    error: Option<String>,
    error_code: Option<String>,
}

/// What counts for nothing: by `sessionContext` its keys that the token says.
#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
struct Ignored {
    session_context: Option<Vec<String>>,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct TimerSet {
    /// Absent where nothing was set: what waits for a time is sent now.
    timer: Option<String>,
    agent_id: String,
    /// RFC 3339.
    next: Option<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Timers {
    items: Vec<Timer>,
    total: u64,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Timer {
    /// Its id.
    timer: String,
    name: Option<String>,
    agent_id: String,
    kind: TimerKind,
    input: Option<Value>,
    session_id: Option<String>,
    #[schemars(extend("enum" = ["active", "fired", "cancelled", "failed"]))]
    state: String,
    /// Why it failed.
    error: Option<String>,
    /// Why it is tried again.
    waits: Option<String>,
    at: Option<String>,
    every: Option<String>,
    cron: Option<String>,
    timezone: Option<String>,
    /// RFC 3339.
    next: Option<String>,
    /// The planned time (`at`), the event (`id`), the `job` and the session of the last event.
    last: Option<Object>,
    /// Events sent.
    fired: u64,
    /// Times left out.
    skipped: u64,
    catch_up: CatchUpPolicy,
    overlap: OverlapPolicy,
    created: String,
    /// Who has set it.
    by: Option<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Approvals {
    items: Vec<Approval>,
    total: u64,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Approval {
    id: String,
    /// The task in whose service it is asked.
    job: Option<String>,
    agent: String,
    session: String,
    turn: u64,
    /// The place of the call in the reply of that turn.
    index: u64,
    tool: String,
    /// A call that waits: `operation`, its final `arguments`, and the sections (`scopes`) that go with it.
    call: Option<Object>,
    /// Questions of the agent: `title` and `asks`.
    questions: Option<Object>,
    /// SHA-256 of what is asked.
    digest: String,
    /// Milliseconds since 1970.
    asked: u64,
    /// Milliseconds since 1970; without an answer it is denied then.
    expires: u64,
    /// `verdict`, `by`, `at`.
    answer: Option<Object>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Outcomes {
    items: Vec<UnknownOutcome>,
    total: u64,
}

#[derive(JsonSchema)]
pub(in crate::http) struct UnknownOutcome {
    id: String,
    /// The task in whose service the call was made, or the job of an operation that was invoked.
    job: Option<String>,
    operation: String,
    /// Where the call stands, when a turn made it: `agent`, `session`, `turn`, `index` and `tool`.
    call: Option<Object>,
    /// Who made the call, of one that was run and is no job.
    caller: Option<String>,
    /// Milliseconds since 1970.
    at: u64,
    settled: Option<Settled>,
}

/// What a person has found out about a call of unknown outcome.
#[derive(JsonSchema)]
pub(in crate::http) struct Settled {
    /// It has happened.
    done: bool,
    result: Option<Value>,
    note: Option<String>,
    by: String,
    /// Milliseconds since 1970.
    at: u64,
}

#[derive(JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(in crate::http) struct Operation {
    name: String,
    /// Where it lies in the lattice.
    asset: String,
    description: Option<String>,
    input: Option<Object>,
    read_only: Option<bool>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Names {
    items: Vec<String>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct SecretStored {
    name: String,
    stored: bool,
    existed: Option<bool>,
    version: Option<u64>,
    hosts: Option<Vec<String>>,
}

#[derive(JsonSchema)]
pub(in crate::http) struct Deleted {
    deleted: bool,
}

/// `documents`, `bytes`, `sessions` and `jobs`, each with what is `used`, the `limit` (absent: any number) and whether
/// an operator has set it (`own`).
#[derive(JsonSchema)]
#[schemars(transparent)]
pub(in crate::http) struct Quota(Object);
