//! The page of the policy: what this owner's agents may do at most, what was revoked, and who holds what. It changes
//! nothing.

use super::agent::AgentIdRequest;
use super::agents::agent_address;
use super::figures::{TimeText, count_text};
use super::page::{PageFrame, render};
use super::text::{sentence, summary};
use crate::domain::authority::Capability;
use crate::domain::decode;
use crate::domain::percent::percent_encode;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::view::agent::{AgentPage, AgentRecordView, AgentView};
use crate::view::policy::{PolicyView, RevocationView};
use crate::view::request::AgentListRequest;
use crate::view::to_json;
use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::Map;

/// Agents of one page: each is read for itself.
const HOLDERS_SHOWN: u64 = 20;

/// Capabilities of one list, and newest revocations.
const CAPABILITIES_SHOWN: usize = 50;
const REVOCATIONS_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "policy.html", config = "src/http/console/askama.toml")]
struct PolicyHtml {
    frame: PageFrame,
    roots: CapabilityLines,
    approvals: CapabilityLines,
    /// The newest revocations, the newest first.
    revocations: Vec<RevocationRow>,
    /// Number of revocations and how many are shown, in words.
    revocations_found: String,
    own: CapabilityLines,
    /// Paths that were revoked from the reader.
    own_revoked: Vec<String>,
    holders: Vec<HolderRow>,
    /// Why the agents are not listed; empty if they are.
    withheld: String,
    /// Address of the next page of agents; empty after the last.
    more: String,
}

/// Capabilities for people, a line each.
struct CapabilityLines {
    /// Whether nothing limits.
    is_unlimited: bool,
    lines: Vec<String>,
    /// Number of capabilities that are left out of `lines`.
    left_out: usize,
}

/// A revocation in the list.
struct RevocationRow {
    id: String,
    /// What is revoked: a path, or everything.
    what: String,
    /// Holder or grant that it applies to.
    whose: String,
    reason: String,
    by: String,
    at: TimeText,
}

/// An agent with what it holds.
struct HolderRow {
    name: String,
    address: String,
    /// Capabilities of its configuration.
    caps: CapabilityLines,
    /// Capabilities of whoever configured it.
    creator: CapabilityLines,
}

impl CapabilityLines {
    /// Makes the lines of a list; `None` is no limit.
    fn new(caps: Option<&[Capability]>) -> Self {
        let all = caps.unwrap_or_default();
        Self {
            is_unlimited: caps.is_none(),
            lines: all.iter().take(CAPABILITIES_SHOWN).map(capability_text).collect(),
            left_out: all.len().saturating_sub(CAPABILITIES_SHOWN),
        }
    }
}

fn capability_text(Capability { with, can }: &Capability) -> String {
    let with = if with.is_empty() { "everything" } else { with };
    summary(&format!("{can} on {with}"))
}

/// `GET /policy`: roots, approvals and revocations, and what agents hold.
pub(in crate::http) async fn policy(
    State(api): State<Api>,
    who: RequestCaller,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let policy: PolicyView = read_output(operate(&api, &who, "v/ops/policy/show", Map::new().into()).await?)?;
    let now = api.venue.now();
    let (holders, more, withheld) = match read_holders(&api, &who, asked.text("after")).await {
        Ok((holders, more)) => (holders, more, String::new()),
        Err(problem) if problem.status == StatusCode::FORBIDDEN => {
            (Vec::new(), String::new(), sentence(&problem.detail))
        }
        Err(problem) => return Err(problem),
    };
    let authority = &who.caller.authority;
    let newest = policy.revocations.iter().rev().take(REVOCATIONS_SHOWN);
    let page = PolicyHtml {
        frame: PageFrame::new(&who, "/policy", "Policy"),
        roots: CapabilityLines::new(policy.roots.as_deref()),
        approvals: CapabilityLines::new(Some(&policy.approvals)),
        revocations: newest.map(|revocation| revocation_row(revocation, now)).collect(),
        revocations_found: revocations_text(policy.revocations.len()),
        own: CapabilityLines::new(authority.capabilities().as_deref()),
        own_revoked: authority.revocations().iter().map(|gone| summary(gone.as_str())).collect(),
        holders,
        withheld,
        more,
    };
    Ok(render(StatusCode::OK, &page))
}

/// Reads a page of agents with what they hold, and the address of the next page.
async fn read_holders(
    api: &Api,
    who: &RequestCaller,
    after: Option<&str>,
) -> Result<(Vec<HolderRow>, String), Problem> {
    let request = AgentListRequest { include_terminated: Some(false), limit: Some(HOLDERS_SHOWN), after };
    let page: AgentPage = read_output(operate(api, who, "v/ops/agent/list", to_json(&request)).await?)?;
    let mut holders = Vec::with_capacity(page.agents.len());
    for row in &page.agents {
        let asked = to_json(&AgentIdRequest { agent_id: row.agent_id.as_str(), limit: None });
        let info: AgentView = match operate(api, who, "v/ops/agent/info", asked).await.map_err(Problem::from) {
            Ok(found) => read_output(found)?,
            // It was deleted in between, or this agent is revoked from the reader.
            Err(gone) if [StatusCode::NOT_FOUND, StatusCode::FORBIDDEN].contains(&gone.status) => continue,
            Err(problem) => return Err(problem),
        };
        holders.push(holder_row(&info.agent)?);
    }
    let more = page.next.as_ref().map(|next| format!("/policy?after={}", percent_encode(next.as_str())));
    Ok((holders, more.unwrap_or_default()))
}

fn holder_row(agent: &AgentRecordView) -> Result<HolderRow, Problem> {
    let caps = agent.config.get("caps").filter(|caps| !caps.is_null()).cloned();
    let caps: Option<Vec<Capability>> = caps
        .map(decode::into_type)
        .transpose()
        .map_err(|error| Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error))?;
    Ok(HolderRow {
        name: agent.agent_id.to_string(),
        address: agent_address(agent.agent_id.as_str()),
        caps: CapabilityLines::new(caps.as_deref()),
        creator: CapabilityLines::new(agent.creator_caps.as_deref()),
    })
}

fn revocations_text(total: usize) -> String {
    let all = count_text(total as u64, "revocation");
    if total > REVOCATIONS_SHOWN {
        format!("The newest {REVOCATIONS_SHOWN} of {all}.")
    } else {
        format!("{all}, the newest first.")
    }
}

fn revocation_row(revocation: &RevocationView, now: Millis) -> RevocationRow {
    let holder = revocation.holder.as_ref().map(|holder| format!("holder {holder}"));
    let grant = revocation.grant.as_ref().map(|grant| format!("grant {grant}"));
    let whose: Vec<String> = holder.into_iter().chain(grant).collect();
    RevocationRow {
        id: summary(&revocation.id),
        what: revocation.path.as_deref().map_or_else(|| "everything".to_owned(), summary),
        whose: if whose.is_empty() { "anybody".to_owned() } else { summary(&whose.join(", ")) },
        reason: revocation.reason.as_deref().map(sentence).unwrap_or_default(),
        by: summary(&revocation.by),
        at: TimeText::new(revocation.at, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_says_how_much_it_leaves_out() {
        let cap = Capability { with: String::new(), can: "crud/read".into() };
        let list = CapabilityLines::new(Some(&vec![cap; CAPABILITIES_SHOWN + 2]));
        assert_eq!((list.lines.len(), list.left_out, list.is_unlimited), (CAPABILITIES_SHOWN, 2, false));
        assert_eq!(list.lines[0], "crud/read on everything");
        assert!(CapabilityLines::new(None).is_unlimited);
        assert_eq!(revocations_text(1), "1 revocation, the newest first.");
        assert_eq!(revocations_text(1_000), "The newest 200 of 1,000 revocations.");
    }
}
