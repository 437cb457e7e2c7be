//! Forms on the page of a value: to write it under its version, to create a key below it, and to delete it.

use super::lattice::{parent_path, path_address, read_page};
use super::page::{render, see_other};
use super::text::{editable_json, sentence, size_text};
use crate::domain::authority::Authority;
use crate::domain::decode;
use crate::domain::lattice::{Namespace, Path as LatticePath};
use crate::domain::visible::reveal_hidden;
use crate::http::Api;
use crate::http::extract::RequestCaller;
use crate::http::problem::Problem;
use crate::http::runs::operate;
use crate::view::lattice::{KeysView, ValueView};
use crate::view::request::{DeleteValueRequest, WriteValueRequest};
use crate::view::to_json;
use axum::Form;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// Bytes of the longest value that a form takes.
const VALUE_FORM_BYTES: usize = 100_000;

/// Form that changes a value.
#[derive(Clone, Deserialize, JsonSchema)]
pub(in crate::http) struct LatticeForm {
    /// `write`, `create` or `delete`.
    action: String,
    /// Key below the path, of a value that is created.
    #[serde(default)]
    key: String,
    /// The value as JSON or text.
    #[serde(default)]
    text: String,
    /// `json` or `text`: the meaning of the value.
    #[serde(default)]
    kind: String,
    /// Version of the value that the page showed; 0: there was none.
    #[serde(default)]
    version: u64,
}

/// A form that was refused, with the reason.
pub(super) struct RefusedForm {
    form: LatticeForm,
    fault: String,
}

/// A value in a form.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ValueDraft {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) is_json: bool,
    /// Version that is replaced; 0: there is no value.
    pub(super) version: u64,
    /// Why it was not written; empty if nothing was refused.
    pub(super) fault: String,
    /// What became of the value since the person opened it; empty if it is the same.
    pub(super) change: String,
}

/// Forms of one page.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ValueForms {
    /// The value itself; `None` where it can't be written as a whole.
    pub(super) edit: Option<ValueDraft>,
    /// A new key below it.
    pub(super) create: Option<ValueDraft>,
    pub(super) may_delete: bool,
    /// Why there is no form for the value; empty if there is one, or the reader may not write.
    pub(super) note: String,
}

impl ValueDraft {
    /// Makes the draft of a stored value. A text with characters that can't be seen stands as JSON, with escapes.
    fn of_value(value: &Value, version: u64) -> Self {
        let plain = value.as_str().filter(|text| reveal_hidden(text) == **text);
        Self {
            text: plain.map_or_else(|| editable_json(value), str::to_owned),
            is_json: plain.is_none(),
            version,
            ..Self::default()
        }
    }

    /// Takes over what a person has entered, and keeps the version that is stored now.
    fn with_entries(self, refused: RefusedForm) -> Self {
        let LatticeForm { key, text, kind, version: opened, .. } = refused.form;
        let change = match (opened, self.version) {
            (opened, stored) if opened == stored => String::new(),
            (0, stored) => format!("The value was created meanwhile: it has version {stored}."),
            (_, 0) => "The value was deleted meanwhile.".to_owned(),
            (opened, stored) => {
                format!("The value was changed meanwhile: you opened version {opened}, stored is version {stored}.")
            }
        };
        Self { key, text, is_json: kind != "text", fault: refused.fault, change, ..self }
    }
}

impl ValueForms {
    /// Makes the forms that an authority may use on a value, with what was refused before.
    pub(super) fn new(
        authority: &Authority,
        path: &str,
        keys: &KeysView,
        found: &ValueView,
        refused: Option<RefusedForm>,
    ) -> Self {
        let Ok(place) = LatticePath::parse(path) else { return Self::default() };
        if !matches!(place.namespace(), Namespace::Workspace | Namespace::Pins) {
            return Self::default();
        }
        let is_value = !place.segments().is_empty();
        let is_map = keys.kind == "map" || !is_value && !keys.exists;
        let mut forms = Self {
            create: (is_map && authority.holds_near("crud/write", path)).then(ValueDraft::default),
            may_delete: is_value && found.exists && authority.permits("crud/delete", &place).is_ok(),
            ..Self::default()
        };
        if is_value && authority.permits("crud/write", &place).is_ok() {
            match draft_of(found) {
                Ok(draft) => forms.edit = Some(draft),
                Err(reason) => forms.note = reason.to_string(),
            }
        }
        if let Some(refused) = refused {
            let form = if refused.form.action == "create" { &mut forms.create } else { &mut forms.edit };
            // A value that can be written no more keeps the person's text, too.
            *form = Some(form.take().unwrap_or_default().with_entries(refused));
        }
        forms
    }
}

/// Why a value that the reader may write has no form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum NoFormError {
    /// The value has more than [`VALUE_FORM_BYTES`].
    #[error("it is too large for a form, which takes {}", size_text(VALUE_FORM_BYTES))]
    TooLarge,
    /// A version of the whole, which a form could name, doesn't exist.
    #[error("its entries have versions of their own, edit them one by one")]
    InParts,
}

/// Returns the draft of what is at a path.
fn draft_of(found: &ValueView) -> Result<ValueDraft, NoFormError> {
    if !found.exists {
        return Ok(ValueDraft { is_json: true, ..ValueDraft::default() });
    }
    if found.truncated == Some(true) {
        return Err(NoFormError::TooLarge);
    }
    let version = found.version.ok_or(NoFormError::InParts)?;
    let draft = ValueDraft::of_value(found.value.as_ref().unwrap_or(&Value::Null), version);
    if draft.text.len() > VALUE_FORM_BYTES { Err(NoFormError::TooLarge) } else { Ok(draft) }
}

/// Returns the value that a form means. Browsers send line breaks in their own form.
fn form_value(form: &LatticeForm) -> Result<Value, Problem> {
    let text = form.text.replace("\r\n", "\n");
    match form.kind.as_str() {
        "text" => Ok(text.into()),
        "json" => decode::json(text.as_bytes()).map_err(|error| {
            Problem::bad_request(format!("the value is not JSON: {error}; choose `text` to store it as it stands"))
        }),
        _ => Err(Problem::bad_request("field `kind`: expected `json` or `text`")),
    }
}

/// `POST /lattice/{*path}`: writes, creates or deletes a value, and shows what is there then.
pub(in crate::http) async fn change_value(
    State(api): State<Api>,
    who: RequestCaller,
    Path(path): Path<String>,
    Form(form): Form<LatticeForm>,
) -> Result<Response, Problem> {
    let path = path.trim_matches('/');
    let target = match form.action.as_str() {
        "delete" => {
            operate(&api, &who, "v/ops/lattice/delete", to_json(&DeleteValueRequest { path })).await?;
            return see_other(&path_address(parent_path(path)));
        }
        "write" => path.to_owned(),
        "create" => format!("{path}/{}", form.key.trim_matches('/')),
        _ => return Err(Problem::bad_request("field `action`: expected `write`, `create` or `delete`")),
    };
    match write_form(&api, &who, &target, &form).await {
        Ok(()) => see_other(&path_address(&target)),
        Err(problem) if is_correctable(problem.status) => {
            let refused = RefusedForm { form, fault: sentence(&problem.detail) };
            // Who may write and not read is told the reason alone.
            let page = read_page(&api, &who, path, 0, Some(refused)).await;
            Ok(render(problem.status, &page.map_err(|_| Problem::new(problem.status, &problem.detail))?))
        }
        Err(problem) => Err(problem),
    }
}

async fn write_form(api: &Api, who: &RequestCaller, path: &str, form: &LatticeForm) -> Result<(), Problem> {
    // Without a key the path would be that of the map itself.
    if form.action == "create" && form.key.trim_matches('/').trim().is_empty() {
        return Err(Problem::bad_request("the key is empty: name the value that is created"));
    }
    let request = WriteValueRequest { path, value: form_value(form)?, expect: Some(form.version) };
    operate(api, who, "v/ops/lattice/write", to_json(&request)).await?;
    Ok(())
}

/// Whether a person can do something about a refusal with the same form: another text, another key, a newer version.
fn is_correctable(status: StatusCode) -> bool {
    [StatusCode::BAD_REQUEST, StatusCode::CONFLICT, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::INSUFFICIENT_STORAGE]
        .contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(kind: &str, text: &str) -> LatticeForm {
        let (action, kind, text) = ("write".to_owned(), kind.to_owned(), text.to_owned());
        LatticeForm { action, key: String::new(), text, kind, version: 3 }
    }

    #[test]
    fn a_form_means_a_text_or_json() {
        assert_eq!(form_value(&form("text", "12\r\n")).ok(), Some(json!("12\n")));
        assert_eq!(form_value(&form("json", "{\"a\": [1]}")).ok(), Some(json!({"a": [1]})));
        assert_eq!(form_value(&form("json", "{")).map_err(|problem| problem.status.as_u16()).err(), Some(400));
        assert!(form_value(&form("", "1")).is_err());
    }

    #[test]
    fn a_draft_means_the_value_that_it_shows() {
        for value in [json!("a\nb"), json!("pay \u{202e}001"), json!("a\rb"), json!({"a": "\u{202e}"}), json!(null)] {
            let draft = ValueDraft::of_value(&value, 1);
            assert!(!draft.text.contains(['\u{202e}', '\r']), "{}", draft.text);
            let form = form(if draft.is_json { "json" } else { "text" }, &draft.text);
            assert_eq!(form_value(&form).ok(), Some(value));
        }
    }

    #[test]
    fn forms_are_offered_where_a_value_can_be_written() {
        let (all, keys) = (Authority::without_limits(), KeysView::default());
        let found = ValueView { exists: true, value: Some(json!("x")), version: Some(3), ..ValueView::default() };
        let forms = |path: &str| ValueForms::new(&all, path, &keys, &found, None);
        let edit = forms("w/a").edit.map(|draft| (draft.text, draft.version));
        assert_eq!(edit, Some(("x".to_owned(), 3)));
        assert_eq!((forms("w").edit, forms("w").create), (None, Some(ValueDraft::default())));
        let in_parts = ValueView { version: None, ..found.clone() };
        let forms_of = |found| ValueForms::new(&all, "w/a", &keys, found, None);
        assert_eq!((forms_of(&in_parts).edit, forms_of(&in_parts).note.starts_with("its entries")), (None, true));
        let large = ValueView { value: Some(json!("x".repeat(VALUE_FORM_BYTES + 1))), ..found.clone() };
        assert_eq!(forms_of(&large).note, "it is too large for a form, which takes 100.0 kB");
        assert_eq!(forms("j/1"), ValueForms::default());
        let reader = Authority::new(Some(vec![crate::domain::authority::Capability {
            with: "w".into(),
            can: "crud/read".into(),
        }]));
        assert_eq!(ValueForms::new(&reader, "w/a", &keys, &found, None), ValueForms::default());
        let refused = RefusedForm { form: form("json", "[7]"), fault: "not JSON".into() };
        let kept = ValueForms::new(&all, "w/a", &keys, &found, Some(refused)).edit.unwrap();
        assert_eq!((kept.text.as_str(), kept.version, kept.change.as_str()), ("[7]", 3, ""));
        let opened = RefusedForm { form: LatticeForm { version: 2, ..form("json", "1") }, fault: "conflict".into() };
        let kept = ValueForms::new(&all, "w/a", &keys, &found, Some(opened)).edit.unwrap();
        assert_eq!(kept.change, "The value was changed meanwhile: you opened version 2, stored is version 3.");
    }
}
