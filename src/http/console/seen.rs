//! The page of who saw a path: the turns in which its bytes reached a model.

use super::figures::{TimeText, count_text};
use super::job::turn_address;
use super::lattice::path_address;
use super::page::{PageFrame, render};
use super::text::{sentence, size_text, summary};
use crate::domain::authority::ResourcePath;
use crate::domain::lattice::Namespace;
use crate::domain::time::Millis;
use crate::http::Api;
use crate::http::extract::RequestCaller;
use crate::http::problem::Problem;
use crate::http::turns::read_path_uses;
use crate::view::ledger::{PathUseView, WhyView};
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

/// Uses of one page.
const USES_SHOWN: usize = 200;

#[derive(Template)]
#[template(path = "seen.html", config = "src/http/console/askama.toml")]
struct SeenHtml {
    frame: PageFrame,
    /// Address of the value.
    address: String,
    /// Number of uses in words, or that there is none that the reader may see.
    found: String,
    /// Number of uses that the reader may not see, in words; empty for none.
    hidden: String,
    /// Parts of the records that were not searched.
    incomplete: Vec<String>,
    rows: Vec<PathUseRow>,
    /// Address of the next page; empty after the last.
    more: String,
}

/// One way in which bytes of the path reached a model.
struct PathUseRow {
    /// Name of the turn, or that a caller outside turns made a copy.
    turn: String,
    /// Address of the turn; empty where there is none any more.
    address: String,
    /// Part of the prompt, tool or answer that had the bytes.
    via: String,
    source: String,
    /// Address of the source; empty where it isn't of the lattice.
    source_address: String,
    /// Version or hash of the source; empty where it has none.
    version: String,
    through: String,
    /// Path to which the bytes were copied; empty for none.
    into: String,
    bytes: String,
    /// What happened at `removed`.
    event: &'static str,
    removed: Option<TimeText>,
}

/// Whether a caller may ask who saw a path: as over the API, with the right to read all agents.
pub(super) fn may_ask_who(who: &RequestCaller) -> bool {
    check_may_ask(who).is_ok()
}

fn check_may_ask(who: &RequestCaller) -> Result<(), Problem> {
    let permitted = who.caller.authority.permits("crud/read", ResourcePath::whole_namespace(Namespace::Agents));
    permitted.map_err(|denied| Problem::forbidden(denied.model_text("`who saw this`")))
}

/// Renders who saw a path, from the use at `offset` on.
pub(super) async fn seen_page(api: &Api, who: &RequestCaller, path: &str, offset: u64) -> Result<Response, Problem> {
    check_may_ask(who)?;
    let why = read_path_uses(api, who, path, None).await?;
    let now = api.venue.now();
    let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
    let rows: Vec<_> =
        why.turns.iter().skip(skipped).take(USES_SHOWN).map(|path_use| path_use_row(path_use, now)).collect();
    let next = skipped.saturating_add(rows.len());
    let address = path_address(&why.path);
    let page = SeenHtml {
        frame: PageFrame::new(who, "/lattice", format!("Who saw {}", summary(&why.path))),
        found: found_text(&why),
        hidden: if why.hidden > 0 { count_text(why.hidden as u64, "more use") } else { String::new() },
        incomplete: why.incomplete.iter().map(|text| sentence(text)).collect(),
        more: if next < why.turns.len() { format!("{address}?seen=1&offset={next}") } else { String::new() },
        rows,
        address,
    };
    Ok(render(StatusCode::OK, &page))
}

/// Returns how many uses were found. "None" is claimed only if everything was searched and may be seen.
fn found_text(why: &WhyView) -> String {
    match (why.turns.len(), why.hidden == 0 && why.incomplete.is_empty()) {
        (0, true) => "No turn has shown it to a model.".to_owned(),
        (0, false) => "No use was found that you may see.".to_owned(),
        (count, _) => format!("{}, by agent and session, the oldest first.", count_text(count as u64, "use")),
    }
}

fn path_use_row(path_use: &PathUseView, now: Millis) -> PathUseRow {
    let is_outside = path_use.agent.is_empty();
    let (turn, address) = match (path_use.agent.parse(), path_use.session.parse()) {
        (Ok(agent), Ok(session)) if !is_outside && path_use.removed.is_none() => {
            (turn_name(path_use), turn_address(&agent, &session, path_use.turn))
        }
        _ if is_outside => ("a caller outside turns".to_owned(), String::new()),
        _ => (turn_name(path_use), String::new()),
    };
    let hash = path_use.hash.as_ref().map(|hash| format!("hash {}", hash.get(..12).unwrap_or(hash)));
    let version = path_use.version.map(|version| format!("version {version}")).or(hash);
    // Several sources of one part stand with commas between.
    let is_one = !path_use.source.contains(", ") && !path_use.source.starts_with("r/");
    PathUseRow {
        turn,
        address,
        via: summary(&path_use.via),
        source: summary(&path_use.source),
        source_address: if is_one { path_address(&path_use.source) } else { String::new() },
        version: version.unwrap_or_default(),
        through: summary(&path_use.through),
        into: path_use.into.as_deref().map(summary).unwrap_or_default(),
        bytes: size_text(path_use.bytes),
        event: if is_outside { "copied" } else { "deleted" },
        removed: path_use.removed.map(|removed| TimeText::new(removed, now)),
    }
}

fn turn_name(path_use: &PathUseView) -> String {
    summary(&format!("{} / {} / {}", path_use.agent, path_use.session, path_use.turn))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_claimed_only_if_all_was_searched() {
        let why = |hidden, incomplete: &[&str]| {
            let incomplete = incomplete.iter().map(|text| (*text).to_owned()).collect();
            found_text(&WhyView { path: "w/a".into(), turns: Vec::new(), hidden, incomplete })
        };
        assert_eq!(why(0, &[]), "No turn has shown it to a model.");
        assert_eq!(why(1, &[]), "No use was found that you may see.");
        assert_eq!(why(0, &["older turns were not searched"]), "No use was found that you may see.");
    }
}
