//! Approvals as they are stored: read, list, answer.
//!
//! An answer is written before its session gets it. The first one counts: that of a person, or that of the session
//! itself after the deadline. With a person's answer goes a mark that stays until the session has the answer: the
//! process that took it may die in between, and the person sees it answered.

mod deliver;

pub use deliver::deliver_answers;

use self::deliver::{answer_mark_key, deliver_now};
use crate::domain::approval::{Approval, ApprovalAnswer, ApprovalSubject, ApprovalVerdict, with_fixed};
use crate::domain::authority::ResourcePath;
use crate::domain::ids::{JobId, Owner, SessionKey};
use crate::domain::job::JobStatus;
use crate::domain::lattice::Namespace;
use crate::domain::lattice::catalog::OPERATIONS;
use crate::domain::limits::LIST_PAGE;
use crate::domain::notification::NotificationKind;
use crate::domain::session::WITHHELD;
use crate::domain::time::Millis;
use crate::domain::values::inject::trusted_arguments;
use crate::store::{DocWrite, Edit, Intake, Store, StoreError, Window, decode_listed, keys, steps};
use crate::venue::Venue;
use crate::venue::agents::{self, sessions};
use crate::venue::declared;
use crate::venue::jobs::{self, ListPage};
use crate::venue::operation::{Caller, OpError, dispatch};
use crate::venue::registry;
use crate::venue::{notices, outside_tools};
use crate::view::approval::ApprovalView;
use std::collections::BTreeSet;

/// Name of the venue in its own answers.
const VENUE: &str = "venue";

/// Entries of approvals that are read at a time.
const PAGE: usize = 64;

/// Returns an approval and the version of its document.
pub async fn get(store: &dyn Store, owner: &Owner, id: &JobId) -> Result<Option<(Approval, u64)>, StoreError> {
    let (approval, version) = store.get_versioned(owner, &keys::approval(id)).await?;
    Ok(approval.map(|approval| (approval, version)))
}

/// Returns a page of an owner's approvals, the newest first: those that wait for an answer, or with `all` every one
/// that is kept. The page ends where the approvals exceed [`crate::domain::limits::LIST_BYTES`].
pub async fn list(
    venue: &Venue,
    owner: &Owner,
    all: bool,
    offset: usize,
    limit: usize,
) -> Result<ListPage<Approval>, StoreError> {
    let mut known = Vec::new();
    let mut look = |approval: Approval| {
        if all || is_unanswered(venue, &approval) {
            known.push((approval.asked, approval.index, approval.id, approval.job.filter(|_| !all)));
        }
    };
    if all {
        for_each(venue, owner, &mut look).await?;
    } else {
        for_each_open(venue, owner, &mut look).await?;
    }
    known.sort_by_key(|(asked, index, ..)| std::cmp::Reverse((*asked, *index)));
    let mut places = Vec::with_capacity(known.len());
    for some in known.chunks(LIST_PAGE) {
        let jobs: Vec<JobId> = some.iter().filter_map(|(.., job)| job.clone()).collect();
        let open: BTreeSet<JobId> = jobs::statuses(venue, owner, &jobs)
            .await?
            .into_iter()
            .filter(|(_, status)| !status.is_terminal())
            .map(|(job, _)| job)
            .collect();
        let waits = some.iter().filter(|(.., job)| job.as_ref().is_none_or(|job| open.contains(job)));
        places.extend(waits.map(|(_, _, id, _)| [keys::approval(id)]));
    }
    let (items, next) = steps::page(&*venue.store, owner, &places, offset, limit).await?;
    Ok(ListPage { items, total: places.len(), next })
}

/// Calls `look` with each approval that an owner keeps.
pub async fn for_each(venue: &Venue, owner: &Owner, look: &mut (dyn FnMut(Approval) + Send)) -> Result<(), StoreError> {
    let mut approvals = venue.store.docs(owner, keys::APPROVALS);
    while let Some(page) = approvals.records().await? {
        for (_, approval) in page {
            look(approval);
        }
    }
    Ok(())
}

/// Calls `look` with each unanswered approval that has an entry.
async fn for_each_open(
    venue: &Venue,
    owner: &Owner,
    look: &mut (dyn FnMut(Approval) + Send),
) -> Result<(), StoreError> {
    list_older(venue, owner).await?;
    let mut entries = venue.store.entries(owner, keys::OPEN_APPROVALS).page_size(PAGE);
    while let Some(page) = entries.keys().await? {
        let ids: Vec<JobId> = page.iter().filter_map(|key| keys::approval_of_open(key)).collect();
        list_unanswered(venue, owner, &ids).await?.into_iter().for_each(&mut *look);
    }
    Ok(())
}

/// Writes entries for approvals of builds that knew no entries: once for an owner, and with each call while a worker of
/// such a build lives, which may ask at any time.
async fn list_older(venue: &Venue, owner: &Owner) -> Result<(), StoreError> {
    let has_older = registry::fleet_state(venue).await?.has_older;
    let is_listed = venue.store.doc(owner, keys::OPEN_APPROVALS_COMPLETE).await?.value.is_some();
    if is_listed && !has_older {
        return Ok(());
    }
    let mut open = Vec::new();
    let mut look = |approval: Approval| {
        if approval.answer.is_none() {
            open.push(approval.id);
        }
    };
    for_each(venue, owner, &mut look).await?;
    for some in open.chunks(PAGE) {
        list_unlisted(venue, owner, some).await?;
    }
    let key = keys::OPEN_APPROVALS_COMPLETE.to_owned();
    let write = if has_older {
        // Approvals that the older worker makes from now on are looked for after its end.
        is_listed.then(|| DocWrite::delete(key))
    } else {
        // A look doesn't give documents to an owner without approvals.
        let has_some = !open.is_empty() || !venue.store.scan(owner, keys::APPROVALS, None, false, 1).await?.is_empty();
        has_some.then(|| DocWrite::index_entry(key))
    };
    let Some(write) = write else { return Ok(()) };
    venue.store.write(venue.now(), owner, &[write]).await.map(|_| ())
}

/// Writes the missing entries of these unanswered approvals, which a worker of an older build has made.
///
/// The entry of an approval that is answered meanwhile stays until the approval is deleted, and is skipped.
pub async fn list_unlisted(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<(), StoreError> {
    let entries: Vec<_> = ids.iter().map(keys::open_approval).collect();
    let docs = venue.store.read(owner, &entries).await?;
    let missing = entries.into_iter().zip(docs).filter(|(_, doc)| doc.value.is_none());
    let writes: Vec<_> = missing.map(|(entry, _)| DocWrite::index_entry(entry)).collect();
    if writes.is_empty() { Ok(()) } else { venue.store.write(venue.now(), owner, &writes).await.map(|_| ()) }
}

/// Returns the writes by which a commit stores an approval, with the notification of it.
pub fn creation_writes(venue: &Venue, owner: &Owner, approval: &Approval) -> [DocWrite; 3] {
    [
        DocWrite::json(keys::approval(&approval.id), approval),
        DocWrite::index_entry(keys::open_approval(&approval.id)),
        notices::approval_write(venue, owner, NotificationKind::ApprovalAsked, approval, approval.asked),
    ]
}

/// Shows an approval to a caller. If the asking turn may do more than the caller, the question is shown only to a
/// caller who may answer it.
pub fn view_for(caller: &Caller, approval: &Approval) -> ApprovalView {
    let shown = ApprovalView::from(approval);
    let may_answer = || caller.authority.permits("job/approve", required_resource(approval)).is_ok();
    let is_visible = caller.reading_authority().covers_reading(&approval.under) || may_answer();
    if is_visible { shown } else { shown.without_subject(WITHHELD) }
}

/// Returns the resource on which an answer needs `job/approve`.
fn required_resource(approval: &Approval) -> ResourcePath {
    match &approval.job {
        Some(job) => ResourcePath::job(job),
        None => ResourcePath::agent(&approval.session.agent),
    }
}

/// Returns the approvals that a session awaits, answered ones included.
pub(super) async fn list_awaited(venue: &Venue, owner: &Owner, session: &SessionKey) -> Result<Vec<JobId>, StoreError> {
    let Some(facts) = sessions::find(venue, owner, session).await? else { return Ok(Vec::new()) };
    let calls = sessions::state(&facts).awaiting.map(|awaiting| awaiting.calls).unwrap_or_default();
    Ok(calls.into_iter().map(|call| call.approval).collect())
}

/// Returns those of these approvals that can still be answered. A damaged one is left out.
pub async fn list_unanswered(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<Approval>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<_> = ids.iter().map(keys::approval).collect();
    let docs = steps::read_listed(&*venue.store, owner, &wanted).await?;
    let found = wanted.iter().zip(docs).filter_map(|(key, doc)| decode_listed::<Approval>(owner, key, &doc.value?));
    Ok(found.filter(|approval| is_unanswered(venue, approval)).collect())
}

/// Approvals of an owner that wait for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenApprovals {
    /// Number of them.
    pub count: usize,
    /// Time at which the oldest of the first 64 was asked for; `None` without any.
    pub oldest: Option<Millis>,
}

/// Counts an owner's open approvals; it reads one page of their entries and those approvals.
pub async fn count_open(venue: &Venue, owner: &Owner) -> Result<OpenApprovals, StoreError> {
    let window = Window { reverse: false, skip: 0, limit: PAGE, values: false };
    let page = venue.store.page(owner, keys::OPEN_APPROVALS, window).await?;
    let ids: Vec<JobId> = page.docs.iter().filter_map(|(key, _)| keys::approval_of_open(key)).collect();
    let read = list_unanswered(venue, owner, &ids).await?;
    let expired = ids.len().saturating_sub(read.len());
    let oldest = read.iter().map(|approval| approval.asked).min();
    Ok(OpenApprovals { count: page.total.saturating_sub(expired), oldest })
}

/// Like [`list_unanswered`], with the versions of the documents. Fails where one of them is damaged.
async fn read_unanswered(venue: &Venue, owner: &Owner, ids: &[JobId]) -> Result<Vec<(Approval, u64)>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let wanted: Vec<_> = ids.iter().map(keys::approval).collect();
    let docs = venue.store.read(owner, &wanted).await?;
    let found = docs.iter().zip(&wanted).map(|(doc, key)| Ok((doc.decode::<Approval>(key)?, doc.version)));
    let found: Vec<(Option<Approval>, u64)> = found.collect::<Result<_, StoreError>>()?;
    let found = found.into_iter().filter_map(|(approval, version)| Some((approval?, version)));
    Ok(found.filter(|(approval, _)| is_unanswered(venue, approval)).collect())
}

/// Returns the writes that set a job to `STARTED` with the last answer that its session awaits. While other approvals
/// are open, returns checks of their versions instead: of two answers at once each would see the other approval as
/// open, and the job would stay as it is.
async fn status_writes(venue: &Venue, owner: &Owner, answered: &Approval) -> Result<Vec<DocWrite>, StoreError> {
    let Some(job) = &answered.job else { return Ok(Vec::new()) };
    let key = keys::job_status(job);
    let status = venue.store.doc(owner, &key).await?;
    if status.status().is_none_or(|(status, _)| status != JobStatus::InputRequired) {
        return Ok(Vec::new());
    }
    let mut others = list_awaited(venue, owner, &answered.session).await?;
    others.retain(|other| *other != answered.id);
    let open = read_unanswered(venue, owner, &others).await?;
    if !open.is_empty() {
        return Ok(open
            .into_iter()
            .map(|(other, version)| DocWrite::check(keys::approval(&other.id), version))
            .collect());
    }
    let started = keys::encode_status(JobStatus::Started, venue.now());
    Ok(vec![DocWrite::put(key, started).at_version(status.version)])
}

fn is_unanswered(venue: &Venue, approval: &Approval) -> bool {
    approval.answer.is_none() && venue.now() < approval.expires
}

async fn has_ended(venue: &Venue, owner: &Owner, approval: &Approval) -> Result<bool, StoreError> {
    let Some(job) = approval.asked_by.as_ref().or(approval.job.as_ref()) else { return Ok(false) };
    Ok(jobs::get(venue, owner, job).await?.is_none_or(|job| job.status.is_terminal()))
}

/// Returns the answer to an approval, for the session that waits for it. Without an answer the approval is closed with
/// `close`, if given. An approval whose document is gone counts as withdrawn.
pub async fn answer_or_close(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    close: Option<ApprovalVerdict>,
) -> Result<Option<ApprovalAnswer>, StoreError> {
    let attempt = || async {
        let by_venue = |verdict| ApprovalAnswer { by: VENUE.to_owned(), at: venue.now(), verdict };
        let Some((approval, version)) = get(&*venue.store, owner, id).await? else {
            return Ok(Edit::without_writes(Some(by_venue(ApprovalVerdict::Withdrawn))));
        };
        let (None, Some(verdict)) = (&approval.answer, &close) else {
            return Ok(Edit::without_writes(approval.answer));
        };
        let closed = Approval { answer: Some(by_venue(verdict.clone())), ..approval };
        let mut writes = answer_writes(&closed, version).to_vec();
        if *verdict == ApprovalVerdict::Expired {
            let kind = NotificationKind::ApprovalExpired;
            writes.push(notices::approval_write(venue, owner, kind, &closed, venue.now()));
        }
        Ok(Edit::write(writes, closed.answer))
    };
    venue.store.edit(venue.now(), owner, "approval", id, attempt).await
}

/// Returns the writes of an answer to an approval of this version.
fn answer_writes(answered: &Approval, version: u64) -> [DocWrite; 2] {
    let record = DocWrite::json(keys::approval(&answered.id), answered).at_version(version);
    [record, DocWrite::delete(keys::open_approval(&answered.id))]
}

/// Answers an approval for a caller, and wakes the session that waits. The same answer again changes nothing; another
/// one is a conflict. `digest` is that of the question which the answer is for, if it names one.
pub async fn decide(
    venue: &Venue,
    caller: &Caller,
    id: &JobId,
    verdict: ApprovalVerdict,
    digest: Option<&str>,
) -> Result<Approval, OpError> {
    let owner = &caller.owner;
    let bytes = serde_json::to_vec(&verdict).map_or(0, |bytes| bytes.len());
    let attempt = || async {
        let found = get(&*venue.store, owner, id).await?;
        let Some((approval, version)) = found else { return Err(missing_error(id)) };
        check(venue, caller, &approval, &verdict, digest).await?;
        match &approval.answer {
            Some(answer) if answer.verdict == verdict => Ok(Edit::without_writes(approval)),
            Some(answer) => Err(already_answered(id, answer)),
            None if venue.now() >= approval.expires => {
                Err(OpError::Conflict(format!("approval `{id}` has expired: the call was not made")))
            }
            None if has_ended(venue, owner, &approval).await? => {
                Err(OpError::Conflict(format!("approval `{id}`: the task that asked for it has ended")))
            }
            None => {
                check_tokens(venue, owner, &approval, &verdict).await?;
                let answer = ApprovalAnswer { by: caller.name.clone(), at: venue.now(), verdict: verdict.clone() };
                let mark = DocWrite::put(answer_mark_key(id, &answer), "");
                let decided = Approval { answer: Some(answer), ..approval };
                let status = status_writes(venue, owner, &decided).await?;
                let kind = NotificationKind::ApprovalDecided;
                let notice = notices::approval_write(venue, owner, kind, &decided, venue.now());
                let writes = answer_writes(&decided, version).into_iter().chain([mark, notice]).chain(status);
                Ok(Edit::write(writes.collect::<Vec<_>>(), decided).with_quota(venue.quota_to_end(bytes).await))
            }
        }
    };
    let decided = venue.store.edit(venue.now(), owner, "approval", id, attempt).await?;
    let Some(told) = deliver_now(venue, owner, &decided).await? else { return Ok(decided) };
    match told {
        Intake::Refused(refusal) => Err(OpError::Conflict(format!("agent `{}`: {refusal}", decided.session.agent))),
        Intake::New | Intake::Duplicate | Intake::Conflict | Intake::ReplaceRunning | Intake::Nothing => Ok(decided),
    }
}

fn missing_error(id: &JobId) -> OpError {
    OpError::NotFound(format!("no approval `{id}`; `approval/list` (`trellis approvals`) shows what waits"))
}

fn already_answered(id: &JobId, answer: &ApprovalAnswer) -> OpError {
    let how = match answer.verdict {
        ApprovalVerdict::Approved { .. } => "approved",
        ApprovalVerdict::Rejected { .. } => "rejected",
        ApprovalVerdict::Answered { .. } => "answered",
        ApprovalVerdict::Expired => "closed as expired",
        ApprovalVerdict::Withdrawn => "withdrawn",
    };
    OpError::Conflict(format!("approval `{id}` was {how} before, by {}; an answer counts once", answer.by))
}

/// Checks that the caller may answer an approval. Whether it exists is not told to a caller who may neither answer nor
/// list it.
pub(super) fn check_may_answer(caller: &Caller, approval: &Approval) -> Result<(), OpError> {
    let Err(denied) = caller.authority.permits("job/approve", required_resource(approval)) else { return Ok(()) };
    let denied = OpError::Denied(denied.model_text("answering an approval"));
    let list = ResourcePath::whole_namespace(Namespace::Jobs);
    Err(caller.hide_unseen(denied, list, || missing_error(&approval.id)))
}

/// Checks that the caller may answer, and that the answer fits the question.
async fn check(
    venue: &Venue,
    caller: &Caller,
    approval: &Approval,
    verdict: &ApprovalVerdict,
    digest: Option<&str>,
) -> Result<(), OpError> {
    check_may_answer(caller, approval)?;
    approval.accepts(verdict, digest).map_err(|error| match error {
        crate::domain::approval::AnswerError::Digest { .. } => OpError::Conflict(error.to_string()),
        _ => OpError::Invalid(error.to_string()),
    })?;
    if let (
        ApprovalSubject::Call { operation, arguments, fixed, .. },
        ApprovalVerdict::Approved { arguments: Some(edited), .. },
    ) = (&approval.subject, verdict)
    {
        let edited = with_fixed(arguments, edited, fixed);
        let agent = &approval.session.agent;
        let catalog = match agents::get(venue, &caller.owner, agent).await? {
            Some((record, _)) => {
                // This process may not have published the tools of the agent's servers.
                let named = std::slice::from_ref(operation);
                Box::pin(outside_tools::prepare_preview(venue, &caller.owner, &record, named)).await?;
                let view = venue.catalog_of_agent(&caller.owner, agent);
                declared::view_for_agent(venue, &caller.owner, view, &record.config).await?
            }
            None => venue.catalog_of_agent(&caller.owner, agent),
        };
        let found = catalog.resolve(operation);
        if found.is_none() && operation.starts_with(OPERATIONS) {
            let text = format!("`{operation}` is not offered any more: other arguments can't be checked");
            return Err(OpError::Conflict(text));
        }
        let trusted = found.map(|found| trusted_arguments(&found.spec.input)).unwrap_or_default();
        if let Some(name) = trusted.into_iter().find(|name| edited.get(*name) != arguments.get(*name)) {
            return Err(OpError::Invalid(format!("argument `{name}` of `{operation}` can't be given in an approval")));
        }
        if dispatch::hides(&catalog, operation, &edited) {
            return Err(OpError::Invalid(
                "the arguments hold a value that may not be recorded; name a secret instead".into(),
            ));
        }
        // A delegate's task and the arguments of a tool that is no operation may be any map.
        if found.is_some() {
            // The caller has seen the arguments and writes others, so an error may show them.
            dispatch::resolve_call(&catalog, operation, edited, false)?.needs()?;
        }
    }
    Ok(())
}

/// Refuses an answer that names a secret which isn't set: it counts once, and so could not be mended.
async fn check_tokens(
    venue: &Venue,
    owner: &Owner,
    approval: &Approval,
    verdict: &ApprovalVerdict,
) -> Result<(), OpError> {
    for (question, name) in approval.tokens(verdict) {
        if venue.store.doc(owner, &keys::secret(&name)).await?.value.is_none() {
            return Err(OpError::Invalid(format!(
                "question `{question}`: no secret `{name}`: set it first (`trellis secret set {name}`)"
            )));
        }
    }
    Ok(())
}
