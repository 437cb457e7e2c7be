//! The page of a value of the lattice: its keys, or the value itself.

use super::lattice_edit::{RefusedForm, ValueForms};
use super::page::{PageFrame, plain_text, render};
use super::seen::{may_ask_who, seen_page};
use super::text::{Passage, raw_text, size_text, summary};
use crate::domain::percent::percent_encode;
use crate::http::Api;
use crate::http::extract::{QueryParams, RequestCaller};
use crate::http::problem::Problem;
use crate::http::runs::{operate, read_output};
use crate::view::lattice::{KeysView, ValueView};
use crate::view::to_json;
use askama::Template;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

/// Keys of one page.
const KEYS_SHOWN: usize = 200;

/// Bytes of the largest value that a page reads.
const VALUE_BYTES: usize = 200_000;

#[derive(Template)]
#[template(path = "lattice.html", config = "src/http/console/askama.toml")]
pub(super) struct LatticeHtml {
    frame: PageFrame,
    /// The path and those above it, from the root.
    trail: Vec<PathLink>,
    address: String,
    exists: bool,
    kind: String,
    /// Number of keys or elements; empty where the value has none.
    count: String,
    keys: Vec<PathLink>,
    /// Address of the next page of keys; empty after the last.
    more: String,
    value: Option<Passage>,
    version: Option<u64>,
    /// Size of a value that is too large for a page.
    too_large: Option<String>,
    forms: ValueForms,
    /// Whether the reader may ask which turns saw the value.
    may_ask_who: bool,
}

impl LatticeHtml {
    /// Returns the address of the value as plain text.
    fn raw_address(&self) -> String {
        format!("{}?raw=true", self.address)
    }
}

/// A path with its last name.
struct PathLink {
    name: String,
    address: String,
}

/// Arguments of reads of a path.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PathRequest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_size: Option<usize>,
}

/// Returns the address of a path.
pub(super) fn path_address(path: &str) -> String {
    let parts: Vec<String> = path.split('/').map(percent_encode).collect();
    format!("/lattice/{}", parts.join("/"))
}

/// Returns the path above another one; a namespace is above itself. A slash inside a key, written as `\/`, doesn't end it.
pub(super) fn parent_path(path: &str) -> &str {
    key_ends(path).rev().nth(1).map_or(path, |end| &path[..end])
}

/// Returns the places at which the keys of a path end.
fn key_ends(path: &str) -> impl DoubleEndedIterator<Item = usize> {
    let slashes = path.match_indices('/').map(|(at, _)| at).filter(|at| !path[..*at].ends_with('\\'));
    slashes.chain([path.len()])
}

/// Returns the path and those above it.
fn path_trail(path: &str) -> Vec<PathLink> {
    let mut start = 0;
    let link = |end: usize| {
        let name = summary(&path[start..end]);
        start = end + 1;
        PathLink { name, address: path_address(&path[..end]) }
    };
    key_ends(path).map(link).collect()
}

/// `GET /lattice`: the namespaces.
pub(in crate::http) async fn lattice_root(State(api): State<Api>, who: RequestCaller) -> Result<Response, Problem> {
    let request = PathRequest { path: None, offset: None, limit: None, max_size: None };
    let keys: KeysView = read_output(operate(&api, &who, "v/ops/lattice/list", to_json(&request)).await?)?;
    let page = LatticeHtml {
        frame: PageFrame::new(&who, "/lattice", "Lattice"),
        trail: Vec::new(),
        address: "/lattice".to_owned(),
        exists: true,
        kind: keys.kind.clone(),
        count: String::new(),
        keys: key_links("", &keys),
        more: String::new(),
        value: None,
        version: None,
        too_large: None,
        forms: ValueForms::default(),
        may_ask_who: false,
    };
    Ok(render(StatusCode::OK, &page))
}

/// `GET /lattice/{*path}`: the keys of a path and its value; with `raw` the value as plain text.
pub(in crate::http) async fn lattice(
    State(api): State<Api>,
    who: RequestCaller,
    Path(path): Path<String>,
    asked: QueryParams,
) -> Result<Response, Problem> {
    let path = path.trim_matches('/');
    if asked.flag("raw")? {
        let request = PathRequest { path: Some(path), offset: None, limit: None, max_size: None };
        let found: ValueView = read_output(operate(&api, &who, "v/ops/lattice/read", to_json(&request)).await?)?;
        let missing = || Problem::not_found(format!("nothing is at `{path}`"));
        return Ok(plain_text(raw_text(&found.value.ok_or_else(missing)?)));
    }
    let offset = asked.number("offset")?.unwrap_or(0);
    if asked.text("seen") == Some("1") || asked.flag("seen")? {
        return seen_page(&api, &who, path, offset).await;
    }
    Ok(render(StatusCode::OK, &read_page(&api, &who, path, offset, None).await?))
}

/// Reads the page of a path, with a form that was refused before.
pub(super) async fn read_page(
    api: &Api,
    who: &RequestCaller,
    path: &str,
    offset: u64,
    refused: Option<RefusedForm>,
) -> Result<LatticeHtml, Problem> {
    let request = PathRequest { path: Some(path), offset: Some(offset), limit: Some(KEYS_SHOWN), max_size: None };
    let keys: KeysView = read_output(operate(api, who, "v/ops/lattice/list", to_json(&request)).await?)?;
    let request = PathRequest { path: Some(path), offset: None, limit: None, max_size: Some(VALUE_BYTES) };
    let found: ValueView = read_output(operate(api, who, "v/ops/lattice/read", to_json(&request)).await?)?;
    let forms = ValueForms::new(&who.caller.authority, path, &keys, &found, refused);
    Ok(LatticeHtml { forms, may_ask_who: may_ask_who(who), ..value_page(who, path, offset, &keys, &found) })
}

fn value_page(who: &RequestCaller, path: &str, offset: u64, keys: &KeysView, found: &ValueView) -> LatticeHtml {
    let address = path_address(path);
    let links = if keys.kind == "array" { element_links(path, offset, keys) } else { key_links(path, keys) };
    let next = offset + links.len() as u64;
    let has_more = !links.is_empty() && keys.count.is_some_and(|count| (count as u64) > next);
    let is_cut = found.truncated == Some(true);
    LatticeHtml {
        frame: PageFrame::new(who, "/lattice", summary(path)),
        trail: path_trail(path),
        exists: keys.exists || found.exists,
        kind: keys.kind.clone(),
        count: keys.count.map(|count| count.to_string()).unwrap_or_default(),
        keys: links,
        more: if has_more { format!("{address}?offset={next}") } else { String::new() },
        value: found.value.as_ref().filter(|_| found.exists && !is_cut).map(Passage::of_value),
        version: found.version,
        too_large: is_cut.then(|| size_text(found.size.unwrap_or_default())),
        forms: ValueForms::default(),
        may_ask_who: false,
        address,
    }
}

/// Returns the links of the keys; `paths` has them where a key has a slash in it.
fn key_links(path: &str, keys: &KeysView) -> Vec<PathLink> {
    let names = keys.keys.iter().flatten().enumerate();
    let link = |(at, key): (usize, &String)| {
        let full = keys.paths.as_ref().and_then(|paths| paths.get(at)).cloned();
        let full = full.unwrap_or_else(|| if path.is_empty() { key.clone() } else { format!("{path}/{key}") });
        PathLink { name: summary(key), address: path_address(&full) }
    };
    names.map(link).collect()
}

/// Returns the links of the elements of a list, from `offset` on.
fn element_links(path: &str, offset: u64, keys: &KeysView) -> Vec<PathLink> {
    let count = keys.count.map_or(0, |count| count as u64);
    let end = count.min(offset.saturating_add(KEYS_SHOWN as u64));
    let link = |at: u64| PathLink { name: at.to_string(), address: path_address(&format!("{path}/{at}")) };
    (offset..end).map(link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trail_has_every_path_above() {
        let trail: Vec<_> = path_trail("w/a b/c").into_iter().map(|link| (link.name, link.address)).collect();
        let expected = [("w", "/lattice/w"), ("a b", "/lattice/w/a%20b"), ("c", "/lattice/w/a%20b/c")];
        assert_eq!(trail, expected.map(|(name, address)| (name.to_owned(), address.to_owned())));
        let names: Vec<_> = path_trail("w/a\\/b/c").into_iter().map(|link| link.name).collect();
        assert_eq!(names, ["w", "a\\/b", "c"]);
        let parents = ["w/a/b", "w/a\\/b", "w"].map(parent_path);
        assert_eq!(parents, ["w/a", "w", "w"]);
    }
}
