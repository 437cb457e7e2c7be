//! `trellis audit --repair`: what is lost for good gets an end; what is only on its way is left alone.

use super::{AuditError, LOOK_PAUSE, LOOKS, OwnerOutcome, QueueListing, counts, read_facts, split_error};
use crate::domain::audit::{Finding, find};
use crate::domain::event::ResultBody;
use crate::domain::ids::{EventId, JobId, Owner, SessionKey, VenueIdSubject};
use crate::domain::job::{ErrorCode, Job, JobResult, JobStatus};
use crate::store::{
    DocKey, DocWrite, FinishOutcome, ForgetOutcome, ForgetRequest, Intake, JobFinish, Refusal, StoreError,
    WriteOutcome, keys,
};
use crate::venue::agents::sessions;
use crate::venue::ingress;
use crate::venue::jobs;
use crate::venue::outbox;
use crate::venue::policy;
use crate::venue::{Venue, is_reserved};
use crate::view::audit::RepairView;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Age below which a record may be on its way: far above the pause between two sweeps, and any lease.
pub const AGE: Duration = Duration::from_mins(10);

/// Repairs what can be repaired safely, for every owner. A repetition repairs what a crash has left.
pub async fn repair(venue: &Venue) -> Result<Vec<RepairView>, AuditError> {
    let mut repaired = Vec::new();
    let mut owners = venue.store.all_owners();
    while let Some(page) = owners.next().await? {
        for owner in page.iter().filter(|owner| !is_reserved(owner)) {
            let mut done = Vec::new();
            // One owner's damaged record must not block the repair of others; the audit names it.
            if let OwnerOutcome::Damaged(error) = split_error(repair_owner(venue, owner, &mut done).await)? {
                tracing::warn!(%owner, %error, "not repaired");
            }
            repaired.extend(done.into_iter().map(|(found, did)| RepairView { owner: owner.to_string(), found, did }));
        }
    }
    Ok(repaired)
}

type RepairTexts = (String, String);

/// Restores what an owner has lost for at least `age`: tasks, results and statuses.
pub(super) async fn repair_lost(
    venue: &Venue,
    owner: &Owner,
    age: Duration,
    repaired: &mut Vec<RepairView>,
) -> Result<(), AuditError> {
    let mut sessions: BTreeMap<SessionKey, u64> = BTreeMap::new();
    for finding in confirmed_findings(venue, owner, age).await? {
        let lost = match &finding {
            Finding::LostTask { session, .. } => Some(session.clone()),
            Finding::LostResult { .. } | Finding::LostStatus { .. } => None,
            Finding::EndedTask { .. } | Finding::LostEvents { .. } => continue,
        };
        // A finding that can't be repaired must not block others.
        match split_error(repair_finding(venue, owner, finding).await)? {
            OwnerOutcome::Done(None) => {}
            OwnerOutcome::Done(Some((found, did))) => {
                repaired.push(RepairView { owner: owner.to_string(), found, did });
                if let Some(session) = lost {
                    *sessions.entry(session).or_default() += 1;
                }
            }
            OwnerOutcome::Damaged(error) => tracing::warn!(%owner, %error, "not repaired"),
        }
    }
    for (session, tasks) in sessions {
        write_off(venue, owner, session, tasks).await?;
    }
    Ok(())
}

/// Writes off as many entries of a session as tasks were lost, if nothing else is missing.
async fn write_off(venue: &Venue, owner: &Owner, session: SessionKey, tasks: u64) -> Result<(), StoreError> {
    let Some(facts) = sessions::find(venue, owner, &session).await? else { return Ok(()) };
    let there = facts.consumed + facts.mailbox.len() as u64;
    if (1..=tasks).contains(&facts.arrivals.saturating_sub(there)) {
        let lost = ForgetRequest { sessions_with_losses: vec![session], ..ForgetRequest::default() };
        venue.store.forget(venue.now(), owner, &lost).await?;
    }
    Ok(())
}

/// Returns what is found in every one of several looks.
async fn confirmed_findings(venue: &Venue, owner: &Owner, age: Duration) -> Result<BTreeSet<Finding>, AuditError> {
    let mut found = find_once(venue, owner, age).await?;
    for _ in 1..LOOKS {
        if found.is_empty() {
            break;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
        let again = find_once(venue, owner, age).await?;
        found.retain(|finding| again.contains(finding));
    }
    Ok(found)
}

async fn repair_owner(venue: &Venue, owner: &Owner, done: &mut Vec<RepairTexts>) -> Result<(), AuditError> {
    done.extend(rebuild_index(venue, owner).await?);
    for finding in confirmed_findings(venue, owner, AGE).await? {
        match split_error(repair_finding(venue, owner, finding).await)? {
            OwnerOutcome::Done(mended) => done.extend(mended),
            OwnerOutcome::Damaged(error) => tracing::warn!(%owner, %error, "not repaired"),
        }
    }
    done.extend(repair_policy(venue, owner).await?);
    done.extend(repair_indexes(venue, owner).await?);
    let drift = counts::find_drift(venue, owner, true).await?;
    done.extend(drift.map(|found| (found, "what is there counts from now on".to_owned())));
    Ok(())
}

/// Builds the index of an owner's documents again if it lacks some: what isn't listed is neither found nor counted.
async fn rebuild_index(venue: &Venue, owner: &Owner) -> Result<Option<RepairTexts>, StoreError> {
    match venue.store.recount(owner, false).await {
        Err(error) if !error.is_transient() => {
            // With other damage this fails as well.
            venue.store.recount(owner, true).await?;
            Ok(Some((error.to_string(), "the index is built again from the documents".to_owned())))
        }
        found => found.map(|_| None),
    }
}

async fn repair_finding(venue: &Venue, owner: &Owner, finding: Finding) -> Result<Option<RepairTexts>, AuditError> {
    Ok(match finding {
        Finding::LostTask { job, session } => repair_lost_task(venue, owner, &job, &session).await?,
        Finding::EndedTask { job, session } => {
            venue.wake(owner, &session).await;
            let found = format!("job {job} has ended and its task lies in the mailbox of session {session}");
            Some((found, "the session is woken and drops it".to_owned()))
        }
        Finding::LostResult { job, session } => repair_lost_result(venue, owner, &job, &session).await?,
        Finding::LostEvents { session } => repair_lost_events(venue, owner, session).await?,
        Finding::LostStatus { job, status } => repair_lost_status(venue, owner, &job, status).await?,
    })
}

/// Writes the status again as the result shows it.
async fn repair_lost_status(
    venue: &Venue,
    owner: &Owner,
    job: &JobId,
    status: JobStatus,
) -> Result<Option<RepairTexts>, StoreError> {
    let (key, now) = (keys::job_status(job), venue.now());
    let version = match venue.store.doc(owner, &key).await {
        Ok(doc) if doc.status().is_some() => return Ok(None),
        Ok(doc) => doc.version,
        Err(error) if error.is_transient() => return Err(error),
        Err(_) => return Ok(None),
    };
    let write = DocWrite::put(key, keys::encode_status(status, now)).at_version(version);
    let written = venue.store.write(now, owner, &[write]).await?;
    let found = format!("the status of job {job} is gone or can't be read");
    Ok((written == WriteOutcome::Done).then(|| (found, format!("it is {} again, as its result says", status.as_str()))))
}

async fn find_once(venue: &Venue, owner: &Owner, age: Duration) -> Result<BTreeSet<Finding>, AuditError> {
    Ok(find(&read_facts(venue, owner, &mut QueueListing::default()).await?, venue.now(), age))
}

/// Puts a lost task back into the mailbox, to be served; if its content is lost, too, fails it.
async fn repair_lost_task(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    session: &SessionKey,
) -> Result<Option<RepairTexts>, StoreError> {
    let Some(job) = jobs::get(venue, owner, id).await? else { return Ok(None) };
    // Another process may have restored it meanwhile, and it has run.
    if job.status.is_terminal() {
        return Ok(None);
    }
    let found = format!("job {id} ({}) of session {session} is in no mailbox, outbox or queue", job.status.as_str());
    let Some(admit) = ingress::readmission(owner, &job.head) else {
        return Ok(fail_lost_job(venue, owner, &job, session).await?.map(|did| (found, did)));
    };
    // The dedupe record is removed, because the event was seen and then lost. If the job ends meanwhile, its task is
    // dropped.
    let events = vec![job.head.event.clone()];
    venue.store.forget(venue.now(), owner, &ForgetRequest { events, ..ForgetRequest::default() }).await?;
    let did = match venue.store.admit(venue.now(), &admit).await?.intake {
        Intake::New | Intake::Duplicate => {
            venue.wake(owner, session).await;
            Some("it is put back, and served".to_owned())
        }
        Intake::Refused(Refusal::UnknownAgent | Refusal::Terminated) => {
            fail_lost_job(venue, owner, &job, session).await?
        }
        // Another look finds it again, when there is room.
        Intake::Refused(Refusal::Busy | Refusal::MailboxFull { .. } | Refusal::Quota(_))
        | Intake::Conflict
        | Intake::ReplaceRunning
        | Intake::Nothing => None,
    };
    Ok(did.map(|did| (found, did)))
}

/// Fails a lost job with `LOST`, and cancels what it started.
async fn fail_lost_job(
    venue: &Venue,
    owner: &Owner,
    job: &Job,
    session: &SessionKey,
) -> Result<Option<String>, StoreError> {
    let id = &job.head.id;
    let result = JobResult::failure(ErrorCode::Lost, "its task was lost by the venue; submit it again under a new id");
    let bytes = Bytes::from(serde_json::to_vec(&result).expect("results serialise"));
    let finish = JobFinish { job: id.clone(), status: JobStatus::Failed, result: bytes };
    let told = outbox::completions(&venue.key, owner, &job.head, &result);
    let cancels = jobs::child_cancel_messages(venue, owner, id, JobStatus::Failed).await?;
    let entries = venue.lasting_entries(&told, &cancels);
    let finished = venue.store.finish(venue.now(), owner, session, &finish, None, &entries).await?;
    if finished != FinishOutcome::Done {
        return Ok(None);
    }
    venue.send(owner, told).await;
    venue.relay(owner, &cancels).await;
    Ok(Some("it is FAILED with LOST, and its caller is told".to_owned()))
}

/// Sends the result again; for a job that is gone, the error `LOST`.
async fn repair_lost_result(
    venue: &Venue,
    owner: &Owner,
    id: &JobId,
    session: &SessionKey,
) -> Result<Option<RepairTexts>, StoreError> {
    let known = jobs::get(venue, owner, id).await?;
    let lost = || JobResult::failure(ErrorCode::Lost, "the job and its result are gone");
    let result = known.and_then(|job| job.result).unwrap_or_else(lost);
    // The dedupe record is removed, because the event may have been seen and then lost.
    let events = vec![EventId::of_venue(&venue.key, VenueIdSubject::Result(id))];
    venue.store.forget(venue.now(), owner, &ForgetRequest { events, ..ForgetRequest::default() }).await?;
    let body = ResultBody { session_id: session.session.clone(), job: id.clone(), result, output_omitted: None };
    let admit = ingress::result_admission(&venue.key, owner, &session.agent, body, venue.now(), 0);
    venue.store.admit(venue.now(), &admit).await?;
    venue.wake(owner, session).await;
    let found = format!("session {session} waits for the result of job {id}, which has ended or is gone");
    Ok(Some((found, "the result is sent again".to_owned())))
}

/// Writes off the lost events of a session.
async fn repair_lost_events(
    venue: &Venue,
    owner: &Owner,
    session: SessionKey,
) -> Result<Option<RepairTexts>, StoreError> {
    let forget = ForgetRequest { sessions_with_losses: vec![session.clone()], ..ForgetRequest::default() };
    let forgotten = venue.store.forget(venue.now(), owner, &forget).await?;
    let found = format!("session {session} got events that are neither in its mailbox nor consumed");
    Ok((forgotten == ForgetOutcome::Done).then(|| (found, "they are written off".to_owned())))
}

/// Writes the policy of an owner or its copy again, if it is missing or can't be read.
pub(super) async fn repair_policy(venue: &Venue, owner: &Owner) -> Result<Option<RepairTexts>, StoreError> {
    let found = policy::repair(venue, owner).await?;
    Ok(found.map(|found| (found, "it is written again".to_owned())))
}

/// Deletes entries of lists without a document.
async fn repair_indexes(venue: &Venue, owner: &Owner) -> Result<Vec<RepairTexts>, StoreError> {
    let job = |key: &str| keys::job_of_entry(key).map(|job| keys::job_head(&job));
    let timer = |key: &str| keys::timer_of_due(key).map(|(_, timer)| keys::timer(&timer));
    let outbound = |key: &str| keys::job_of_due(keys::OUTBOUND_DUE, key).map(|(_, job)| keys::outbound(&job));
    let mut done = delete_orphans(venue, owner, keys::JOB_LIST, job).await?;
    done.extend(delete_orphans(venue, owner, keys::OUTBOUND_DUE, outbound).await?);
    let invoked = |key: &str| keys::job_of_due(keys::INVOKED_DUE, key).map(|(_, job)| keys::invocation(&job));
    done.extend(delete_orphans(venue, owner, keys::INVOKED_DUE, invoked).await?);
    done.extend(delete_orphans(venue, owner, keys::TIMERS_DUE, timer).await?);
    Ok(done)
}

async fn delete_orphans(
    venue: &Venue,
    owner: &Owner,
    prefix: &str,
    stands_for: impl Fn(&str) -> Option<DocKey>,
) -> Result<Vec<RepairTexts>, StoreError> {
    let mut done = Vec::new();
    let mut entries = venue.store.entries(owner, prefix);
    while let Some(page) = entries.keys().await? {
        let places: Vec<_> = page.into_iter().filter_map(|key| Some((stands_for(&key)?, key))).collect();
        let wanted: Vec<_> = places.iter().map(|(document, _)| document.clone()).collect();
        let docs = venue.store.read(owner, &wanted).await?;
        let orphans = places.into_iter().zip(docs).filter(|(_, doc)| doc.value.is_none());
        for ((document, key), _) in orphans {
            // Both are written and deleted together, so that an entry deleted meanwhile is gone, too.
            let forget = ForgetRequest { documents: vec![key.clone()], ..ForgetRequest::default() };
            let there = venue.store.read(owner, &[key.clone(), document.clone()]).await?;
            if there.first().is_some_and(|place| place.value.is_some())
                && there.get(1).is_some_and(|document| document.value.is_none())
            {
                venue.store.forget(venue.now(), owner, &forget).await?;
                done.push((format!("`{key}` stands for `{document}`, which is gone"), "it is deleted".to_owned()));
            }
        }
    }
    Ok(done)
}
