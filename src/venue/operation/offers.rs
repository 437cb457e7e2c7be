//! Operations that an agent finds by `more_tools`: only those that it could call.

use super::RegisteredOperation;
use crate::domain::authority::Authority;
use crate::domain::authority::ability::INVOKE;

/// What a call of an operation needs whatever its arguments are.
enum StaticNeed {
    /// The operation is offered only to agents whose `tools` name it.
    Named,
    /// Only people and operators may call the operation, or nobody.
    People,
    /// Each of these abilities, on something at or under one of the places.
    Abilities(&'static [&'static str], &'static [&'static str]),
    /// Nothing that could be known without the arguments: the own `c/` and `t/` may always be used.
    Nothing,
}

/// Returns why an agent of this authority doesn't find an operation; `None` if it does.
pub fn find_obstacle(authority: &Authority, operation: &RegisteredOperation) -> Option<String> {
    let path = &*operation.spec.path;
    let without = |missing: &str| Some(format!("it needs the capability `{missing}`, which you don't hold"));
    if operation.version.is_some() {
        return if authority.holds_near(INVOKE, path) { None } else { without(INVOKE) };
    }
    match static_need(path.strip_prefix("v/ops/").unwrap_or(path)) {
        StaticNeed::Named => Some("only agents whose `tools` name it are offered it".to_owned()),
        StaticNeed::People => Some("no agent may call it".to_owned()),
        StaticNeed::Abilities(abilities, places) => {
            let holds = |ability: &'static str| places.iter().any(|place| authority.holds_near(ability, place));
            without(abilities.iter().find(|&&ability| !holds(ability))?)
        }
        StaticNeed::Nothing => None,
    }
}

/// Returns the abilities that calls of an operation need, each on one of the places.
pub fn abilities(path: &str) -> Option<(&'static [&'static str], &'static [&'static str])> {
    match static_need(path.strip_prefix("v/ops/").unwrap_or(path)) {
        StaticNeed::Abilities(abilities, places) => Some((abilities, places)),
        StaticNeed::Named | StaticNeed::People | StaticNeed::Nothing => None,
    }
}

fn static_need(name: &str) -> StaticNeed {
    let agents = |abilities| StaticNeed::Abilities(abilities, &["g"]);
    let jobs = |abilities| StaticNeed::Abilities(abilities, &["j"]);
    match name {
        "secret/set" => StaticNeed::Named,
        "secret/extract" | "quota/set" | "resource/list" | "resource/purge" | "job/outcomes" | "job/settle"
        | "hitl/respond" | "scheduler/trigger" | "mcp/approve" | "mcp/login" | "mcp/login-finish" | "mcp/logout"
        | "mcp/refresh" | "a2a/approve" | "a2a/refresh" => StaticNeed::People,
        _ if ["policy/", "approval/", "venue/", "webhook/", "worker/"].iter().any(|group| name.starts_with(group)) => {
            StaticNeed::People
        }
        "agent/create" => agents(&["agent/create"]),
        "agent/request" => agents(&["agent/request"]),
        "agent/message" | "agent/chat" => agents(&["agent/message"]),
        "agent/trigger" | "scheduler/schedule" => agents(&["agent/trigger"]),
        "agent/update" => agents(&["agent/update"]),
        "agent/suspend" => agents(&["agent/suspend"]),
        "agent/resume" => agents(&["agent/resume"]),
        "agent/delete" => agents(&["agent/delete"]),
        "agent/fork" => agents(&["agent/fork", "agent/create"]),
        "agent/session-fork" => agents(&["agent/fork"]),
        "agent/rename-session" | "agent/compact-session" | "agent/delete-session" => agents(&["agent/session"]),
        "agent/info"
        | "agent/list"
        | "agent/sessions"
        | "agent/session-read"
        | "agent/context"
        | "agent/reload-context"
        | "spend/today"
        | "timer/list"
        | "scheduler/list" => agents(&["crud/read"]),
        "agent/cancel-task" => jobs(&["job/cancel"]),
        "job/pause" => jobs(&["job/pause"]),
        "job/resume" => jobs(&["job/resume"]),
        "job/message" => jobs(&["job/message"]),
        "job/bulk" | "dead/list" | "dead/show" => jobs(&["crud/read"]),
        "dead/redrive" => jobs(&["job/redrive"]),
        "asset/store" => StaticNeed::Abilities(&["asset/store"], &["a"]),
        "asset/list" => StaticNeed::Abilities(&["crud/read"], &["a"]),
        "secret/list" => StaticNeed::Abilities(&["secret/list"], &["s"]),
        "secret/delete" => StaticNeed::Abilities(&["secret/delete"], &["s"]),
        "quota/show" => StaticNeed::Abilities(&["quota/show"], &["quota"]),
        "queue/publish" => StaticNeed::Abilities(&["queue/publish"], &["queue"]),
        "http/get" => StaticNeed::Abilities(&["http/get"], &["https:", "http:"]),
        "http/post" => StaticNeed::Abilities(&["http/post"], &["https:", "http:"]),
        _ => StaticNeed::Nothing,
    }
}
