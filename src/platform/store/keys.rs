//! Every document key, with its layout and lifetime. Ids are encoded tokens; `/` separates.
//!
//! | key | value | written by | lifetime |
//! |---|---|---|---|
//! | `w/<collection>`, `o/<collection>`, `w.e/<collection>/<generation>/<entry>` and below | user data, see `domain::lattice::layout` | commits, API writes | until deleted |
//! | `g/<agent>` | JSON agent record | agent operations | until the agent is removed |
//! | `g/<agent>/gate` | [`Gate`] line, decoded by the store itself | agent operations | as the record |
//! | `g/<agent>/turn/<session>/<turn>` | JSON turn record | commits | `retention.turns`, see `domain::retention` |
//! | `g/<agent>/time/<start>-<session>-<turn>` | empty; timeline order | commits | as the turn |
//! | `g/<agent>/ledger/<session>/<turn>` | manifest of what a model saw, see `domain::context::record` | commits | as the turn |
//! | `g/<agent>/mcp/<server>` | JSON of the approved tools of a server that the agent declares, see `domain::mcp::pin` | turns that first use it, people who approve a change | as the agent's other documents |
//! | `mcp/<server>` | JSON of the approved tools of a server that the venue names; in the venue's own owner where all owners share it | turns that first use it, people who approve a change | for good |
//! | `g/<agent>/mcp.login/<server>` | JSON of the login at a server that the agent declares, its tokens sealed, see `domain::mcp::oauth` | people who log in, workers that renew its token | until the logout, and as the agent's other documents |
//! | `mcp.login/<server>` | the same of a server that the venue names; in the venue's own owner where all owners share it | people who log in, workers that renew its token | until the logout |
//! | `mcp.begun/<hash of the state>` | JSON of a login that a person has begun | people who log in | until it ends; of those that don't the newest 16, until another begins 10 minutes later |
//! | `g/<agent>/card/<name>` | JSON of the approved card of an agent elsewhere that the agent declares, see `domain::a2a::pin` | turns that first use it, people who approve a change | as the agent's other documents |
//! | `card/<name>` | the same of one that the venue names; in the venue's own owner where all owners share it | turns that first use it, people who approve a change | for good |
//! | `reads/<agent>/<created>/<number>` | JSON list of what models of a removed agent have seen, see `venue::ledger::path_uses`; `<created>` is when the agent was created | the agent's removal | `retention.turns` after it |
//! | `reads/<agent>/s/<session>/<deleted>/<number>` | JSON list of what models have seen in a deleted session | the session's deletion | `retention.turns` after it |
//! | `reads/~/<hash>` | JSON list of one copy that a caller from outside made | operations, as far as the quota has room | `retention.turns` after the last such copy |
//! | `g/<agent>/copy`, `g/<agent>/copy/<session>` | JSON time of the last step of a fork to that name, see `venue::agents::copies` | forks | while the fork copies |
//! | `p.t/<period>/<name>` | part of prompts: UTF-8 text, see `domain::context::record` | commits | with retention, when its period is over and no turn names it |
//! | `p/<name>` | part of prompts, written by builds without periods | older builds | with retention, when the oldest period is over or there is none |
//! | `p.at/<period>` | time at which the last scan of the period's parts began | retention | until the last part is removed or a turn of the period is committed late |
//! | `s/<name>` | JSON, a sealed secret, see `domain::secret::record` | secret operations | until deleted |
//! | `a/<hash>` | JSON asset record, immutable; listed only when its content is complete | asset operations | for good |
//! | `a.c/<hash>/<number>` | bytes of its content, 256 KiB each, `<number>` 4 digits | asset operations, before the record | as the record |
//! | `r/memory/<namespace>/<id>` | JSON memory entry; `<id>` is an HMAC of its content | commits | until forgotten or purged |
//! | `r/files/f/<path>/r` | JSON file record | commits | until purged |
//! | `r/files/c/<path>/<hash>` | JSON text, the content of the file | commits | as the record |
//! | `r/scratchpad/<bucket>/<at>-<job>` | JSON note, see `domain::resource::scratchpad` | commits | the newest 200, until purged |
//! | `j/<job>` | JSON job head, immutable | admit, checkpoint | `retention.jobs` after its end |
//! | `j/<job>/s` | `STATUS updated-ms`; while paused `PAUSED updated-ms STATUS`, with the status that it resumes with | store | as the head |
//! | `j/<job>/r` | JSON job result | store | as the head |
//! | `j/<job>/w` | JSON of what the job waited for last | workers | as the head |
//! | `j/<job>/u` | JSON of the tokens and the money that the job has used, see `domain::spend` | commits | as the head |
//! | `q/<job>` | JSON state of a job of an external worker, see `domain::external` | the turn that starts it, workers | as the job |
//! | `q.due/<due>-<job>` | empty; jobs of external workers by the time at which they are due | with the state | until the job has ended |
//! | `i/<job>` | JSON of an invoked operation, see `domain::invocation` | callers, the worker that runs it | until it has ended |
//! | `i.due/<due>-<job>` | empty; invoked operations by the time at which they are due | with the record | as the record |
//! | `b/<job>-agent`, `b/<job>-request` | JSON of a budget's account, see `domain::budget` | workers, around model calls | as the job |
//! | `dead/<died>-<job>` | JSON of a task that ended too many workers, see `domain::dead` | the commit that drops it | as the job, or until it is redriven |
//! | `key`, `key.copy` | 64 hexadecimal digits, the key that ids are derived from, and its copy, see `load_or_make_key` of `venue`; in the venue's own owner only | the first process | for good |
//! | `format` | JSON of the format of all documents, see `domain::format`; in the venue's own owner only | the first process of a newer build | for good |
//! | `worker/<worker>` | JSON entry of the worker registry, see `domain::worker_registry`; in the venue's own owner only | workers, operators who tell one to leave | until the worker ends, or a day after its last report |
//! | `epoch` | JSON of the store's last mark, see `domain::generation`; in the venue's own owner, and on a cluster in one owner of the venue per shard | workers | for good |
//! | `epoch.back/<found>` | JSON of a time at which the store was found set back; in the venue's own owner only | workers | for good |
//! | `epoch.tail/<found>-<worker>` | JSON of acknowledged changes that a process found missing, see `domain::losses`; in the venue's own owner only | workers, servers | the newest 1,000 |
//! | `epoch.safe` | JSON of the time up to which the store is known to be complete; in the venue's own owner only | workers, servers | for good |
//! | `epoch.settled` | JSON of who settled what was lost, and when; in the venue's own owner only | operators | for good |
//! | `marker` | `<until> <worker>`: the worker that writes the marks by which a store that was set back is recognised; in the venue's own owner only | workers | for good |
//! | `stray/<published>-<sequence>` | JSON of a message with an unknown subject, see `domain::dead`; in the venue's own owner only | workers | the newest 1,000 |
//! | `h/<approval>` | JSON of an approval: the question and the answer, see `domain::approval` | commits, answers | `retention.jobs` after its answer, and as the job |
//! | `h.open/<approval>` | empty; approvals without an answer | the commit that asks; lists and retention for approvals of older builds | until the approval is answered, and as the approval |
//! | `h.listed` | empty; says that all approvals of builds without `h.open/` have their entries | the first list | until a list finds a live worker of such a build |
//! | `h.due/<due>-<approval>` | empty; answers that their session may not have received | answers | until the session has received it |
//! | `u/<outcome>` | JSON of a call whose outcome is unknown, see `domain::outcome` | commits, ends of invoked operations, people | `retention.jobs` after it, or after its settlement |
//! | `u.due/<due>-<outcome>` | JSON of a call that has begun, by the time at which it is due, see `domain::outcome` | checkpoints, `run` | until its end is recorded, or it is listed |
//! | `m/<timer>` | JSON timer, see `domain::timer` | timer operations, fires | 24 h after its last time |
//! | `m.due/<due>-<timer>` | empty; timers by the time at which they are due | with the timer | as the timer |
//! | `m.of/<agent>/<timer>` | empty; timers that still fire, by agent | with the timer | while it fires |
//! | `j/<job>/m/<at>-<message>` | JSON of a message that a client of the Agent2Agent protocol sent, see `venue::a2a::messages` | the API, after the message was accepted | as the head |
//! | `j/<job>/n/<config>` | JSON of a push notification, see `venue::a2a::push`; at the job of a delivery to a webhook what it sends, see `domain::webhook` | the API, the worker that delivers it | until it is deleted, and as the head |
//! | `e.due/<due>-<notification>` | JSON of a notification that is not sent yet, see `domain::notification` | the write that it tells of | until it is sent |
//! | `e.state` | JSON of the caps that were announced and of dropped notifications, see `domain::webhook` | workers, servers | for good |
//! | `hook/<name>` | JSON of a webhook of the owner, see `domain::webhook` | webhook operations | until deleted |
//! | `hook.at/<name>`, `hook.at/venue/<name>` | JSON of what became of the deliveries to a webhook of the owner, or of the venue | workers | as the webhook; of the venue's for good |
//! | `j/<job>/c/<child>` | empty; jobs that the job has started | admit, checkpoint | as the head |
//! | `g.end/<agent>` | `<since-ms> end` or `<since-ms> remove`: an agent that is being deleted | agent operations | until the deletion is complete |
//! | `x/<prefix>` | empty; documents under this prefix are garbage | commits, API writes | until freed |
//! | `v/project` | JSON map, the values of `v/context/project`; in the tenant's owner only | operators | until deleted |
//! | `v/users/<user>` | JSON map, the values of `v/context/users/<user>`; in the tenant's owner only | operators | until deleted |
//! | `origin/<hour>/<event>` | number of turns that a request has caused in an hour, see `domain::lineage` | workers, after model calls | two hours to two days, with retention |
//! | `rate/<provider or model>` | JSON meter of a rate limit, see `domain::rate`; in the venue's own owner only | workers, around model calls | for good |
//! | `g/<agent>/spend/<session>` | JSON of what is spent under a session's cap, see `domain::cap` | workers, around model calls | as the session |
//! | `g/<agent>/wait/<session>` | JSON of what a session without a task waited for last | workers | as the session |
//! | `cap/<date>` | JSON of what is spent under the cap of an owner's day; in a tenant's own owner: of the tenant's day | workers, around model calls | 40 days, with retention |
//! | `cap/<date>/<user>` | JSON of what is spent under the cap of a user's day | workers, around model calls | 40 days, with retention |
//! | `cap.of/<date>/<provider or model>` | JSON of what is spent under the cap of a model's day; in the venue's own owner only | workers, around model calls | 40 days, with retention |
//! | `day/<date>/<agent>/<session>/<since>` | JSON of what a session has used on a day, by model, see `domain::spend` | commits | 40 days, with retention |
//! | `policy`, `policy.copy` | JSON policy: roots and revocations, and its copy, see `venue::policy` | operators | for good |
//! | `erasures` | empty; written again after each erasure of turns | erasures | for good |
//! | `quota` | line of the limits of this owner, decoded by the store itself, see `domain::quota` | operators | for good |
//! | `l/<created>-<job>` | empty; job list order | admit, checkpoint | as the head |
//!
//! `<turn>`, `<start>`, `<due>` and `<created>` are zero-padded to 16 digits, so that they sort.

use crate::domain::ids::secret::SecretName;
use crate::domain::ids::{AgentId, AssetId, EventId, JobId, OwnerPart, SessionKey};
use crate::domain::time::Millis;
use crate::domain::timer::TimerId;
use crate::store::DocKey;

pub use crate::domain::gate::{BusyPolicy, Gate, GateStatus};

mod a2a;
mod claims;
mod history;
mod job_status;
mod marks;
mod mcp;
mod notifications;
mod parts;
mod reads;
mod spend;

pub use a2a::*;
pub use claims::{MARKER, agent_claim, session_claim};
pub use history::*;
pub use job_status::{decode_status, encode_paused, encode_status, status_before};
pub use marks::*;
pub use mcp::*;
pub use notifications::{
    NOTIFICATIONS_DUE, NOTIFICATIONS_STATE, WEBHOOK_STATES, WEBHOOKS, notification_due, venue_webhook_state, webhook,
    webhook_state,
};
pub use parts::{PART_SCANS, PARTS, part, part_name, part_scan, parts, period_of_part, period_of_scan};
pub use reads::{READS, agent_reads, outside_copy, reads, session_reads};
pub use spend::{
    BUDGETS, MODEL_CAPS, OWNER_CAPS, SESSION_CAPS, SESSION_DAYS, account, is_needed_by_work, is_spending, job_spend,
    model_cap, owner_cap, rate, session_cap, session_day, session_days, session_of_day, session_wait, user_cap,
};

/// Key of an owner's policy.
pub const POLICY: &str = "policy";

/// Key of the mark whose version grows with every erasure of turns of the owner.
pub const ERASURES: &str = "erasures";

/// Key of an owner's quota.
pub const QUOTA: &str = "quota";

/// Prefix of the records and documents of agents.
pub const AGENTS: &str = "g/";

/// Returns the key of an agent's record.
pub fn agent(agent: &AgentId) -> String {
    format!("{AGENTS}{}", agent.token())
}

/// Returns the key of an agent's gate.
pub fn agent_gate(agent: &AgentId) -> String {
    agent_gate_of(&agent.token())
}

/// Returns the same key for the token of an agent.
pub fn agent_gate_of(token: &str) -> String {
    format!("g/{token}/gate")
}

/// Returns the prefix of all documents of an agent but its record.
pub fn agent_documents(agent: &AgentId) -> String {
    format!("g/{}/", agent.token())
}

/// Returns the prefix of an agent's turn records, ordered by session and turn.
pub fn agent_turns(agent: &AgentId) -> String {
    format!("g/{}/turn/", agent.token())
}

/// Returns the prefix of a session's turn records.
pub fn turns(session: &SessionKey) -> String {
    format!("{}{}/", agent_turns(&session.agent), session.session.token())
}

/// Returns the key of a turn record.
pub fn turn(session: &SessionKey, turn: u64) -> String {
    format!("{}{turn:016}", turns(session))
}

/// Returns the turn number in the key of a turn record.
pub fn number_of_turn(key: &str) -> Option<u64> {
    key.rsplit('/').next()?.parse().ok()
}

/// Returns the prefix of an agent's manifests, ordered by session and turn.
pub fn agent_ledgers(agent: &AgentId) -> String {
    format!("g/{}/ledger/", agent.token())
}

/// Returns the prefix of a session's manifests.
pub fn ledgers(session: &SessionKey) -> String {
    format!("{}{}/", agent_ledgers(&session.agent), session.session.token())
}

/// Returns the key of a turn's manifest.
pub fn ledger(session: &SessionKey, turn: u64) -> String {
    format!("{}{turn:016}", ledgers(session))
}

/// Returns the session's token and the turn number in the key of a manifest.
pub fn ledger_turn<'k>(agent: &AgentId, key: &'k str) -> Option<(&'k str, u64)> {
    let (session, turn) = key.strip_prefix(&agent_ledgers(agent))?.split_once('/')?;
    Some((session, turn.parse().ok()?))
}

/// Returns the prefix of an agent's timeline index.
pub fn timeline(agent: &AgentId) -> String {
    format!("g/{}/time/", agent.token())
}

/// Returns the key of a turn's entry in the timeline index.
pub fn timeline_entry(session: &SessionKey, start: Millis, turn: u64) -> String {
    format!("{}{:016}-{}-{turn:016}", timeline(&session.agent), start.0, session.session.token())
}

/// Returns a key that sorts before the entries of all turns that started at `start` or later.
pub fn timeline_from(agent: &AgentId, start: Millis) -> String {
    format!("{}{:016}", timeline(agent), start.0)
}

/// Returns the turn of a timeline entry: its session's token and the key of the turn record.
pub fn timeline_turn<'e>(agent: &AgentId, entry: &'e str) -> Option<(&'e str, DocKey)> {
    let (_start, place) = entry.strip_prefix(&timeline(agent))?.split_once('-')?;
    let (session, turn) = place.rsplit_once('-')?;
    Some((session, format!("g/{}/turn/{session}/{turn}", agent.token())))
}

/// Prefix of secrets.
pub const SECRETS: &str = "s/";

/// Returns the key of a secret.
pub fn secret(name: &SecretName) -> String {
    name.path()
}

/// Returns the name in the key of a secret.
pub fn secret_name(key: &str) -> Option<SecretName> {
    SecretName::from_path(key).ok()
}

/// Prefix of asset records.
pub const ASSETS: &str = "a/";

/// Returns the key of an asset's record.
pub fn asset(asset: &AssetId) -> String {
    format!("{ASSETS}{asset}")
}

/// Returns the key of a part of an asset's content.
pub fn asset_chunk(asset: &AssetId, number: usize) -> String {
    format!("a.c/{asset}/{number:04}")
}

/// Returns the key of a job's head.
pub fn job_head(job: &JobId) -> String {
    format!("j/{job}")
}

/// Returns the job in the key of a job head.
pub fn job_of_head(key: &str) -> Option<JobId> {
    JobId::new(key.strip_prefix("j/")?).ok()
}

/// Returns the key of a job's status.
pub fn job_status(job: &JobId) -> String {
    format!("j/{job}/s")
}

/// Returns the key of a job's result.
pub fn job_result(job: &JobId) -> String {
    format!("j/{job}/r")
}

/// Returns the key of the record of what a job waits for.
pub fn job_wait(job: &JobId) -> String {
    format!("j/{job}/w")
}

/// Returns the prefix of the entries of a job's children.
pub fn job_children(job: &JobId) -> String {
    format!("j/{job}/c/")
}

/// Returns the key of a job's entry among the children of `parent`.
pub fn job_child(parent: &JobId, job: &JobId) -> String {
    format!("{}{job}", job_children(parent))
}

/// Prefix of the states of jobs of external workers.
pub const OUTBOUND: &str = "q/";

/// Returns the key of the state of a job of an external worker.
pub fn outbound(job: &JobId) -> String {
    format!("{OUTBOUND}{job}")
}

/// Prefix of jobs of external workers by due time.
pub const OUTBOUND_DUE: &str = "q.due/";

/// Returns the key of such a job's entry under [`OUTBOUND_DUE`].
pub fn outbound_due(due: Millis, job: &JobId) -> String {
    format!("{OUTBOUND_DUE}{:016}-{job}", due.0)
}

/// Returns due time and job of a key under `prefix`; the inverse of [`outbound_due`], [`invoked_due`],
/// [`answer_due`] and [`notification_due`].
pub fn job_of_due(prefix: &str, key: &str) -> Option<(Millis, JobId)> {
    let (due, job) = key.strip_prefix(prefix)?.split_once('-')?;
    Some((Millis(due.parse().ok()?), JobId::new(job).ok()?))
}

/// Prefix of invoked operations that have not ended.
pub const INVOCATIONS: &str = "i/";

/// Returns the key of an invoked operation that has not ended.
pub fn invocation(job: &JobId) -> String {
    format!("{INVOCATIONS}{job}")
}

/// Prefix of invoked operations by due time.
pub const INVOKED_DUE: &str = "i.due/";

/// Returns the key of an operation's entry under [`INVOKED_DUE`].
pub fn invoked_due(due: Millis, job: &JobId) -> String {
    format!("{INVOKED_DUE}{:016}-{job}", due.0)
}

/// Prefix of the counts of turns that requests have caused, oldest hours first.
pub const ORIGINS: &str = "origin/";

/// Returns the key of the number of turns that a request has caused in an hour.
pub fn origin(hour: u64, event: &EventId) -> String {
    format!("{ORIGINS}{hour:08}/{}", event.token())
}

/// Returns the hour in the key of such a count.
pub fn hour_of_origin(key: &str) -> Option<u64> {
    key.strip_prefix(ORIGINS)?.split_once('/')?.0.parse().ok()
}

/// Prefix of dead letters.
pub const DEAD_LETTERS: &str = "dead/";

/// Returns the key of a dead letter; `died` is when its job failed.
pub fn dead_letter(died: Millis, job: &JobId) -> String {
    format!("{DEAD_LETTERS}{:016}-{job}", died.0)
}

/// Prefix of messages with an unknown subject, oldest first.
pub const STRAYS: &str = "stray/";

/// Returns the key of such a message, by its publication time and its place in the stream.
pub fn stray(published: Millis, sequence: u64) -> String {
    format!("{STRAYS}{:016}-{sequence:020}", published.0)
}

/// Prefix of approvals.
pub const APPROVALS: &str = "h/";

/// Returns the key of an approval.
pub fn approval(id: &JobId) -> String {
    format!("{APPROVALS}{id}")
}

/// Prefix of timers.
pub const TIMERS: &str = "m/";

/// Returns the key of a timer.
pub fn timer(id: &TimerId) -> String {
    format!("{TIMERS}{id}")
}

/// Prefix of timers by due time.
pub const TIMERS_DUE: &str = "m.due/";

/// Returns the key of a timer's entry under [`TIMERS_DUE`].
pub fn timer_due(due: Millis, id: &TimerId) -> String {
    format!("{TIMERS_DUE}{:016}-{id}", due.0)
}

/// Returns due time and timer of a key of [`timer_due`].
pub fn timer_of_due(key: &str) -> Option<(Millis, TimerId)> {
    let (due, id) = key.strip_prefix(TIMERS_DUE)?.split_once('-')?;
    Some((Millis(due.parse().ok()?), TimerId::new(id).ok()?))
}

/// Returns the prefix of the entries of an agent's timers that still fire.
pub fn agent_timers(agent: &AgentId) -> String {
    format!("m.of/{}/", agent.token())
}

/// Returns the key of a timer's entry among those of its agent.
pub fn agent_timer(agent: &AgentId, id: &TimerId) -> String {
    format!("{}{id}", agent_timers(agent))
}

/// Prefix of the job list, oldest jobs first.
pub const JOB_LIST: &str = "l/";

/// Returns the key of a job's entry in the job list.
pub fn job_list_entry(created: Millis, job: &JobId) -> String {
    format!("{JOB_LIST}{:016}-{job}", created.0)
}

/// Returns the job of a key of the job list.
pub fn job_of_entry(key: &str) -> Option<JobId> {
    JobId::new(key.strip_prefix(JOB_LIST)?.split_once('-')?.1).ok()
}

/// Returns a key that sorts behind the entries of all jobs opened at `last` or before.
pub fn job_list_until(last: Millis) -> String {
    format!("{JOB_LIST}{:016}", last.0.saturating_add(1))
}

/// Returns the keys of all documents of a job but its children's entries and its places in lists. The record of an
/// invoked operation is removed with its run, which lists it if its outcome is unknown.
pub fn job_documents(job: &JobId) -> [String; 8] {
    let [agent, request] = job_accounts(job);
    [job_head(job), job_status(job), job_result(job), job_wait(job), job_spend(job), outbound(job), agent, request]
}

/// Returns the keys of a job's budget accounts: of its agent's limits and of the request's.
pub fn job_accounts(job: &JobId) -> [String; 2] {
    ["agent", "request"].map(|of| account(&format!("{job}-{of}")))
}

/// Returns the job of a job list entry; any text before its last `-` is accepted.
pub fn listed_job(entry: &str) -> Option<JobId> {
    JobId::new(entry.rsplit('-').next()?).ok()
}

/// Key of a tenant's project values.
pub const PROJECT_VALUES: &str = "v/project";

/// Prefix of a tenant's values of its users.
pub const USER_VALUES: &str = "v/users/";

/// Returns the key of a tenant's values of one user.
pub fn user_values(user: &OwnerPart) -> String {
    format!("{USER_VALUES}{}", user.token())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::JobStatus;

    #[test]
    fn stored_lines_are_pinned_and_round_trip() {
        let gate = Gate { status: GateStatus::Active, concurrency: 8, mailbox: 1000, busy: BusyPolicy::Queue };
        assert_eq!(gate.encode(), "ACTIVE 8 1000 queue");
        assert_eq!(Gate::decode(b"ACTIVE 8 1000 queue"), Some(gate));
        assert_eq!(Gate::decode(b"ACTIVE 8"), None);
        assert_eq!(encode_status(JobStatus::Complete, Millis(7)), "COMPLETE 7");
        assert_eq!(decode_status(b"COMPLETE 7"), Some((JobStatus::Complete, Millis(7))));
        assert_eq!(encode_paused(JobStatus::InputRequired, Millis(7)), "PAUSED 7 INPUT_REQUIRED");
        for (line, status, before) in [
            ("PAUSED 7 STARTED", Some((JobStatus::Paused, Millis(7))), Some(JobStatus::Started)),
            ("STARTED 7", Some((JobStatus::Started, Millis(7))), None),
            ("STARTED", None, None),
            ("X 7 Y", None, None),
        ] {
            assert_eq!((decode_status(line.as_bytes()), status_before(line.as_bytes())), (status, before), "{line}");
        }
    }

    #[test]
    fn keys_are_pinned() {
        let key = SessionKey { agent: "a.b".parse().unwrap(), session: "main".parse().unwrap() };
        let job = JobId::new(&"0f".repeat(16)).unwrap();
        assert_eq!(turn(&key, 7), "g/a%2Eb/turn/main/0000000000000007");
        assert_eq!(ledger(&key, 7), "g/a%2Eb/ledger/main/0000000000000007");
        assert_eq!(ledger_turn(&key.agent, &ledger(&key, 7)), Some(("main", 7)));
        assert_eq!(timeline_entry(&key, Millis(5), 7), "g/a%2Eb/time/0000000000000005-main-0000000000000007");
        let dashed = SessionKey { session: "a-b".parse().unwrap(), ..key.clone() };
        for key in [&key, &dashed] {
            let entry = timeline_entry(key, Millis(5), 7);
            assert_eq!(timeline_turn(&key.agent, &entry), Some((key.session.token().as_ref(), turn(key, 7))));
        }
        assert_eq!(agent_gate(&key.agent), "g/a%2Eb/gate");
        let asset_id = AssetId::of_content(b"");
        assert_eq!(asset(&asset_id), "a/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(asset_chunk(&asset_id, 7), format!("a.c/{asset_id}/0007"));
        assert_eq!((job_status(&job), job_child(&job, &job)), (format!("j/{job}/s"), format!("j/{job}/c/{job}")));
        assert_eq!(account("x-agent"), "b/x-agent");
        assert_eq!((approval(&job), outcome(&job)), (format!("h/{job}"), format!("u/{job}")));
        assert_eq!(open_call(Millis(5), &job), format!("u.due/0000000000000005-{job}"));
        assert_eq!(user_values(&OwnerPart::new("a.b").unwrap()), "v/users/a%2Eb");
        let timer_id = TimerId::new(&"0f".repeat(16)).unwrap();
        assert_eq!(timer(&timer_id), format!("m/{timer_id}"));
        assert_eq!(timer_due(Millis(5), &timer_id), format!("m.due/0000000000000005-{timer_id}"));
        assert_eq!(timer_of_due(&timer_due(Millis(5), &timer_id)), Some((Millis(5), timer_id.clone())));
        assert_eq!(agent_timer(&key.agent, &timer_id), format!("m.of/a%2Eb/{timer_id}"));
        let entry = job_list_entry(Millis(5), &job);
        assert_eq!(entry, format!("l/0000000000000005-{job}"));
        assert_eq!(job_of_entry(&entry), Some(job.clone()));
        assert!(entry < job_list_until(Millis(5)) && entry > job_list_until(Millis(4)));
        assert_eq!(outbound_due(Millis(5), &job), format!("q.due/0000000000000005-{job}"));
        assert_eq!(job_of_due(OUTBOUND_DUE, &outbound_due(Millis(5), &job)), Some((Millis(5), job.clone())));
        assert_eq!((outbound(&job), invocation(&job)), (format!("q/{job}"), format!("i/{job}")));
        assert_eq!(invoked_due(Millis(5), &job), format!("i.due/0000000000000005-{job}"));
        assert_eq!(job_of_due(INVOKED_DUE, &invoked_due(Millis(5), &job)), Some((Millis(5), job.clone())));
        assert_eq!(stray(Millis(5), 7), "stray/0000000000000005-00000000000000000007");
        assert_eq!(hour_of_origin(&origin(7, &"a.b".parse().unwrap())), Some(7));
        assert_eq!((job_documents(&job).len(), number_of_turn(&turn(&key, 7))), (8, Some(7)));
    }
}
