//! The result of a job from what an agent elsewhere has answered.

use crate::domain::a2a::answer::{RemoteAnswer, RemoteFile, RemoteFileContent, RemoteState};
use crate::domain::a2a::task::RemoteTaskInput;
use crate::domain::asset::AssetForm;
use crate::domain::authority::ResourcePath;
use crate::domain::job::{ErrorCode, JobResult};
use crate::domain::lattice::Namespace;
use crate::domain::limits::{A2A_RESULT_BYTES, A2A_TEXT_BYTES};
use crate::domain::secret::Mask;
use crate::domain::visible::{cut_at, cut_error};
use crate::store::StoreError;
use crate::venue::operation::Caller;
use crate::venue::{Venue, assets};
use crate::view::remote_agent::{RemoteFileView, RemoteResultView};
use crate::view::to_json;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// Returns the result of a job. `mask` has the secrets that the agent was sent: a stored answer doesn't show them either.
pub(super) async fn result_of_answer(
    venue: &Venue,
    caller: &Caller,
    input: &RemoteTaskInput,
    mask: &Mask,
    answer: &RemoteAnswer,
) -> Result<JobResult, StoreError> {
    let failed = |code: ErrorCode, how: &str| {
        let task = answer.task.as_deref().map(|task| format!(" (task `{task}`)")).unwrap_or_default();
        let text = format!("the A2A agent `{}` {how}{task}: {}", input.agent, answer.line());
        Ok(JobResult::failure(code, cut_error(text)))
    };
    match answer.state {
        RemoteState::Failed => return failed(ErrorCode::TaskFailed, "failed"),
        RemoteState::Rejected => return failed(ErrorCode::Refused, "refused the task"),
        RemoteState::Canceled => return failed(ErrorCode::TaskFailed, "has cancelled the task itself"),
        RemoteState::Working | RemoteState::InputRequired | RemoteState::AuthRequired | RemoteState::Completed => {}
    }
    let mut files = Vec::with_capacity(answer.files.len());
    for file in &answer.files {
        files.push(keep_file(venue, caller, file).await?);
    }
    let view = RemoteResultView {
        agent: input.agent.to_string(),
        state: answer.state,
        task_id: answer.task.clone(),
        context_id: answer.context.clone(),
        text: answer.texts.join("\n"),
        data: answer.data.clone(),
        files,
        next: answer.state.advice().map(str::to_owned),
        whole: None,
        cut: None,
    };
    let value = to_json(&view);
    if value.to_string().len() <= A2A_RESULT_BYTES {
        return Ok(JobResult::complete(value));
    }
    Ok(JobResult::complete(to_json(&cut_result(venue, caller, mask, view).await?)))
}

/// Returns a result that is too large without its values, and with the beginning of its texts; the whole is stored as an
/// asset, where that may be.
async fn cut_result(
    venue: &Venue,
    caller: &Caller,
    mask: &Mask,
    view: RemoteResultView,
) -> Result<RemoteResultView, StoreError> {
    let whole = mask.value(to_json(&view)).to_string();
    // A secret at the cut would be cut, too, and what is left of it is not known as one.
    let view = RemoteResultView { text: mask.text(&view.text).into_owned(), ..view };
    let form = AssetForm {
        content_base64: Some(BASE64_STANDARD.encode(&whole)),
        content_type: Some("application/json".to_owned()),
        ..AssetForm::default()
    };
    let (kept, why) = store(venue, caller, form).await?;
    let rest = why.map_or_else(|| "`whole` has the rest".to_owned(), |why| format!("the rest is lost: {why}"));
    let (bytes, text) = (whole.len(), cut_at(&view.text, A2A_TEXT_BYTES));
    let cut = format!("the answer has {bytes} bytes, and a result has at most {A2A_RESULT_BYTES}; {rest}");
    let files = view.files.into_iter().take(10).collect();
    Ok(RemoteResultView { text, data: Vec::new(), files, whole: kept, cut: Some(cut), ..view })
}

/// Stores the bytes of a file as an asset, if the caller may store assets.
async fn keep_file(venue: &Venue, caller: &Caller, file: &RemoteFile) -> Result<RemoteFileView, StoreError> {
    let (name, media_type) = (file.name.clone(), file.media_type.clone());
    let base64 = match &file.content {
        RemoteFileContent::Url(url) => {
            return Ok(RemoteFileView { name, media_type, url: Some(url.clone()), asset: None, not_kept: None });
        }
        RemoteFileContent::Base64(base64) => base64.clone(),
    };
    let form =
        AssetForm { content_base64: Some(base64), content_type: Some(media_type.clone()), ..AssetForm::default() };
    let (asset, not_kept) = store(venue, caller, form).await?;
    Ok(RemoteFileView { name, media_type, url: None, asset, not_kept })
}

/// Stores an asset; returns its path, or why it isn't stored.
async fn store(
    venue: &Venue,
    caller: &Caller,
    form: AssetForm,
) -> Result<(Option<String>, Option<String>), StoreError> {
    let place = ResourcePath::whole_namespace(Namespace::Assets);
    if let Err(denied) = caller.authority.permits("asset/store", place) {
        return Ok((None, Some(denied.model_text("the result of an A2A agent"))));
    }
    let draft = match form.draft(venue.now()) {
        Ok(draft) => draft,
        Err(error) => return Ok((None, Some(error.to_string()))),
    };
    match assets::put(venue, &caller.owner, &draft).await {
        Ok((id, ..)) => Ok((Some(format!("a/{id}")), None)),
        Err(error) if error.is_transient() => Err(error),
        // The task was done: an owner without room gets the rest of its result.
        Err(error) => Ok((None, Some(error.to_string()))),
    }
}
