//! The rules of `Store`, one case each, stamped on every backend: none can skip one.
//!
//! A backend implements [`Fixture`] and adds one line, `conformance!(name, ItsFixture);`. A case
//! that is not in the list of `conformance!` is dead code, which is refused here.

#![deny(dead_code)]

mod admit;
mod amend;
mod capacity;
mod commit;
mod crashes;
mod documents;
mod embedded;
mod finish;
mod forget;
mod lease;
mod owner_cap;
mod paused_jobs;
mod priority;
pub mod quota;
mod reads;
mod redis;
mod redis_cluster;
mod repeated_calls;
mod set_session;
mod simulated;
mod sweep;
mod tenants;
mod typed;

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;
use trellis::domain::ids::{AgentId, EventId, JobId, Owner, SessionKey, sha256_hex};
use trellis::domain::job::{ErrorCode, JobResult, JobStatus};
use trellis::domain::message::{BusMessage, InboundKind, MessageAddress};
use trellis::domain::time::Millis;
use trellis::store::{
    AdmissionOutcome, Admit, Commit, CommitOutcome, Continuation, Doc, DocEffect, DocWrite, EventKind, Expect, Grant,
    JobFinish, LeaseOutcome, LeaseRequest, LeaseUse, NewEvent, NewJob, OutboxEntry, SessionFacts, Store, SweepResult,
    Window, WriteOutcome, keys,
};

/// A backend under test.
pub trait Fixture: Sized {
    /// An empty store that takes `now` from its caller; `None` when its server isn't installed.
    async fn new() -> Option<Self>;
    /// The store.
    fn store(&self) -> Arc<dyn Store>;
}

/// Stamps every case on a backend.
macro_rules! conformance {
    ($backend:ident, $fixture:ty) => {
        mod $backend {
            $crate::store::conformance::stamp! { $fixture:
                admit:
                    an_event_is_appended_once a_lease_hands_out_a_bounded_weight a_duplicate_still_tries_the_lease another_body_is_a_conflict
                    an_unknown_agent_refuses_and_remembers_nothing a_terminated_agent_refuses
                    a_duplicate_is_recognised_before_the_agent_is_checked
                    a_full_mailbox_refuses_tasks_and_messages_but_not_results
                    a_busy_agent_that_rejects_takes_messages_only a_task_opens_its_job_once
                    a_job_is_listed_with_the_children_of_the_job_that_started_it
                    an_existing_status_survives_the_task the_first_result_of_a_job_wins
                    admission_writes_its_outbox_once a_mailbox_is_sorted_by_order_then_id
                    an_event_is_due_within_five_seconds events_of_owners_are_apart
                    events_that_arrive_at_once_are_all_kept;
                amend:
                    an_amended_session_goes_on_with_what_it_was_given a_session_is_amended_only_as_it_was_seen
                    a_session_is_amended_only_where_its_checks_hold
                    a_session_that_a_worker_has_is_not_amended
                    a_dropped_session_is_gone_with_its_documents_and_its_holders;
                capacity:
                    concurrency_counts_unexpired_leases a_release_wakes_the_longest_waiting
                    a_sweep_wakes_a_waiter_when_a_lease_lapses an_unpublished_wake_is_not_made_again
                    a_newcomer_does_not_overtake_those_who_wait
                    a_suspended_agent_takes_but_does_not_run resumption_wakes_the_waiting
                    a_waiter_whose_work_went_away_lets_the_next_one_in
                    a_release_returns_the_wake_of_the_next_waiting_session
                    a_holder_who_comes_back_waits_for_no_slot a_holder_who_backs_off_leaves_the_queue;
                owner_cap:
                    a_cap_counts_the_leases_of_all_agents_of_an_owner agents_take_turns_for_the_slots_of_their_owner
                    a_newcomer_does_not_take_the_slot_of_a_woken_waiter
                    an_agent_without_a_slot_leaves_its_turn_to_the_next a_suspended_agent_keeps_nobody_waiting
                    a_lost_wake_of_an_owners_slot_is_made_again a_higher_cap_lets_all_in
                    a_holder_keeps_its_slot_when_the_cap_sinks a_resumed_agent_is_told_of_each_free_slot_once
                    a_queue_at_one_agent_keeps_no_other_from_free_slots many_agents_are_told_in_their_turn_and_none_twice;
                commit:
                    a_commit_applies_everything a_commit_is_idempotent_while_held
                    a_commit_is_idempotent_after_its_release a_commit_is_known_after_another_was_granted
                    a_later_commit_of_a_holder_that_released_is_fenced a_commit_of_another_turn_is_fenced
                    a_commit_of_an_old_epoch_is_fenced a_conflict_writes_nothing
                    a_cancelled_task_stops_the_commit a_commit_that_knows_of_the_cancellation_passes
                    a_keep_hands_out_the_mailbox a_keep_starts_the_next_task
                    a_release_holds_on_when_more_arrived a_commit_clears_the_checkpoint
                    a_finished_job_keeps_its_first_result a_commit_consumes_only_what_is_there a_big_commit_is_one_commit;
                crashes:
                    an_expired_lease_counts_a_crash_on_what_it_served a_release_counts_no_crash
                    a_commit_resets_crash_counts a_crash_is_not_counted_on_later_arrivals
                    the_limit_fails_the_job_and_still_hands_out_the_entry a_dead_letter_does_not_undo_an_end
                    messages_never_fail_a_job a_grant_tells_who_died_before_it crash_reports_are_bounded
                    a_holder_that_lives_is_charged_with_nothing;
                documents:
                    versions_grow_with_every_write a_deleted_document_keeps_a_version
                    deleting_what_is_absent_changes_nothing a_check_writes_nothing
                    a_conflict_names_every_document any_byte_survives
                    a_write_that_is_repeated_meets_itself;
                finish:
                    an_unknown_job_stays_unknown an_unknown_job_is_made_with_open
                    the_first_end_of_a_job_wins a_finished_jobs_entry_leaves_an_idle_session
                    a_finished_jobs_entry_stays_during_a_lease the_holder_learns_of_a_cancellation
                    an_end_during_the_lease_leaves_the_session_due an_end_clears_the_backoff
                    an_end_without_an_entry_leaves_the_session_alone
                    messages_of_an_end_are_written_with_it an_ended_job_gets_no_head;
                paused_jobs:
                    a_paused_job_is_leased_as_paused_and_resumes_unchanged
                    a_turns_result_for_a_paused_job_counts_on_resume
                    an_ended_job_cannot_be_paused a_job_resumed_during_a_lease_is_due_again
                    messages_to_a_job_leave_with_its_task no_crash_counts_against_a_paused_task;
                priority:
                    urgent_tasks_come_first_and_each_priority_in_its_order
                    a_task_that_was_begun_stays_the_first a_task_that_was_begun_is_handed_out_within_the_limit
                    a_task_is_handed_out_however_much_lies_before_it
                    a_task_is_handed_out_however_large_what_lies_before_it_is
                    a_crash_and_a_new_grant_keep_what_was_begun a_pause_before_its_first_turn_holds_no_place
                    urgent_sessions_wait_before_others_and_low_ones_behind
                    a_session_that_waits_moves_up_with_an_urgent_task
                    a_woken_waiter_yields_to_an_urgent_session;
                quota:
                    documents_of_an_owner_are_counted a_recount_goes_on_beside_writes_and_mends_what_drifted
                    owners_are_counted_apart writes_that_would_pass_a_quota_are_refused_whole
                    an_owners_own_quota_counts_before_the_venues
                    events_over_quota_are_refused_and_not_remembered
                    accepted_work_ends_whatever_the_quota;
                forget:
                    a_forgotten_event_is_new_again a_session_that_rests_is_forgotten_and_begins_anew
                    a_session_that_got_something_meanwhile_keeps_all
                    a_session_that_is_due_or_waits_is_not_forgotten
                    a_set_session_without_mail_is_forgotten_like_any_other;
                lease:
                    a_grant_has_everything_to_go_on a_holder_is_told_the_versions_that_it_stands_on epochs_grow_with_time_and_by_one_when_it_stands_still a_live_lease_is_busy a_lost_grant_is_found_again a_lost_grant_that_lapsed_is_found_unless_taken
                    a_request_whose_lease_was_given_back_is_like_any_other
                    a_wake_of_an_idle_session_is_empty a_wake_of_an_unknown_agent_is_empty
                    the_mailbox_limit_is_kept the_first_task_starts renewal_moves_the_end
                    renewal_after_another_grant_is_fenced renewal_after_release_is_fenced
                    a_lapsed_lease_that_nobody_took_is_still_held a_checkpoint_reaches_the_successor
                    a_checkpoint_twice_is_once a_late_checkpoint_changes_nothing
                    a_checkpoint_opens_jobs_and_writes_messages a_fenced_checkpoint_writes_nothing
                    a_checkpoint_writes_and_deletes_documents
                    a_release_is_idempotent a_release_sets_and_clears_the_due_time
                    a_release_of_a_fenced_holder_is_fenced a_release_holds_on_to_new_events
                    a_backoff_takes_events_but_gives_no_lease;
                reads:
                    a_scan_pages_in_order a_scan_runs_backwards a_scan_stays_under_its_prefix
                    a_page_is_a_window_and_the_number_of_all
                    owners_are_registered_by_their_first_write sessions_page_by_agent
                    a_page_shorter_than_its_limit_is_the_end
                    arrivals_minus_consumed_is_the_mailbox a_session_shows_what_its_last_commit_left
                    store_settings_are_reported;
                set_session:
                    a_new_session_goes_on_behind_its_snapshot a_set_session_makes_its_owner_known a_session_set_twice_is_set_once_and_none_is_replaced
                    a_held_session_is_neither_set_nor_forgotten no_session_is_forgotten_or_set_under_a_check_that_fails
                    a_forgotten_session_is_gone_and_begins_again
                    no_holder_of_before_comes_back_after_a_session_was_forgotten
                    a_forgotten_session_holds_no_slot_and_waits_for_none
                    an_agent_with_policy_replace_takes_tasks_like_queue
                    a_task_that_asks_for_its_policy_is_taken_unless_replace;
                sweep:
                    overdue_sessions_are_handed_out_once_per_grace a_lapsed_lease_is_due
                    an_idle_session_is_not_due a_sweep_has_a_limit
                    an_owner_is_due_when_something_of_it_is waiting_work_keeps_its_owner_due
                    later_due_work_is_named_with_its_time names_that_look_like_times_are_none
                    other_due_work_is_named_by_its_first_document
                    unpublished_messages_are_handed_out_once_per_grace published_messages_are_gone
                    a_wake_message_names_its_session a_damaged_gate_stops_neither_sweep_nor_release;
                tenants:
                    a_tenants_users_are_counted_and_limited owners_with_documents_are_never_too_many
                    registrations_at_once_do_not_pass_the_limit;
                typed:
                    edits_at_once_all_count an_edit_that_others_always_outrun_is_given_up
                    an_edit_decides_what_is_written_and_within_what typed_writes_become_document_writes
                    the_last_page_ends_at_the_last_record a_page_of_large_documents_is_short
                    an_undecodable_document_is_named sessions_and_owners_come_page_after_page;
            }
        }
    };
}
pub(crate) use conformance;

macro_rules! stamp {
    ($fixture:ty: $($file:ident: $($case:ident)*;)*) => {
        $($(
            #[tokio::test]
            async fn $case() {
                let Some(fixture) = <$fixture as $crate::store::conformance::Fixture>::new().await else { return };
                let store = $crate::store::conformance::Fixture::store(&fixture);
                $crate::store::conformance::$file::$case($crate::store::conformance::World::new(store.clone())).await;
                $crate::store::conformance::quota::all_is_counted(&*store).await;
            }
        )*)*
    };
}
pub(crate) use stamp;

/// The time at which cases begin.
const T0: Millis = Millis(1_700_000_000_000);
const TTL: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(10);
/// Given back, and nobody waited for the slot.
const RELEASED: Continuation = Continuation::Released { wakes: Vec::new() };

/// `ms` after the beginning.
fn at(ms: u64) -> Millis {
    Millis(T0.0 + ms)
}

/// A store with an owner, and the short names of what cases do to it.
pub struct World {
    store: Arc<dyn Store>,
    owner: Owner,
}

fn session(name: &str) -> SessionKey {
    let (agent, session) = name.split_once('/').unwrap_or(("clerk", name));
    SessionKey { agent: agent.parse().unwrap(), session: session.parse().unwrap() }
}

/// The job of event `id`.
fn job(id: &str) -> JobId {
    JobId::new(&sha256_hex(id.as_bytes())[..32]).unwrap()
}

fn new_job(id: &str) -> NewJob {
    NewJob { job: job(id), head: Bytes::from(format!("head of {id}")), parent: None }
}

fn ends(id: &str, status: JobStatus) -> JobFinish {
    JobFinish { job: job(id), status, result: Bytes::from(format!("{} {id}", status.as_str())) }
}

fn entry(id: &str) -> OutboxEntry {
    OutboxEntry { id: id.to_owned(), message: Bytes::from(format!("message {id}")) }
}

fn event(kind: EventKind, id: &str) -> NewEvent {
    NewEvent {
        id: EventId::new(id).unwrap(),
        body_hash: sha256_hex(id.as_bytes()),
        kind,
        job: None,
        order: "0001".to_owned(),
        body: Bytes::from(format!("body of {id}")),
        open: None,
        finish: None,
        outbox: Vec::new(),
        quota: None,
        may_replace: false,
    }
}

fn task(id: &str) -> NewEvent {
    NewEvent { job: Some(job(id)), open: Some(new_job(id)), ..event(EventKind::Task, id) }
}

fn message(id: &str) -> NewEvent {
    event(EventKind::Message, id)
}

fn ask() -> LeaseRequest {
    let token = uuid::Uuid::new_v4().to_string();
    LeaseRequest { token, worker: "w1".to_owned(), ttl: TTL, mailbox_limit: 100, crash_limit: 3, owner_cap: 0 }
}

fn put(key: &str, value: &str) -> DocWrite {
    DocWrite { key: key.to_owned(), expect: Expect::Any, change: DocEffect::Put(Bytes::from(value.to_owned())) }
}

fn release(arrivals: u64) -> LeaseUse {
    LeaseUse::Release { arrivals, due: None, backoff: false }
}

/// A commit that consumes the grant's mailbox and keeps the lease.
fn turn(grant: &Grant) -> Commit {
    Commit {
        turn: grant.version + 1,
        consume: grant.mailbox.iter().map(|e| e.key.clone()).collect(),
        writes: Vec::new(),
        status: None,
        finish: Vec::new(),
        outbox: Vec::new(),
        state: Bytes::from_static(b"state"),
        unless_cancelled: None,
        after_commit: LeaseUse::Keep,
    }
}

/// The same, and gives the lease back.
fn last_turn(grant: &Grant) -> Commit {
    Commit { after_commit: release(grant.arrivals), ..turn(grant) }
}

fn granted(admitted: AdmissionOutcome) -> Grant {
    match admitted.lease {
        LeaseOutcome::Run(grant) => *grant,
        other => panic!("expected a grant, got {other:?}"),
    }
}

fn held(next: Continuation) -> (Vec<String>, u64) {
    match next {
        Continuation::Held { mailbox, arrivals, .. } => (mailbox.into_iter().map(|e| e.key).collect(), arrivals),
        Continuation::Released { .. } => panic!("expected the lease to be kept"),
    }
}

impl World {
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, owner: "acme/ann".parse().unwrap() }
    }

    /// Writes the gate of an agent, e.g. `ACTIVE 8 100 queue`.
    async fn gate_of(&self, agent: &str, gate: &str) {
        let key = keys::agent_gate(&agent.parse::<AgentId>().unwrap());
        assert_eq!(self.write(T0, &[put(&key, gate)]).await, WriteOutcome::Done);
    }

    /// Writes the gate of the agent `clerk`.
    async fn gate(&self, gate: &str) {
        self.gate_of("clerk", gate).await;
    }

    /// An agent that runs 8 sessions and queues.
    async fn agent(&self) {
        self.gate("ACTIVE 8 100 queue").await;
    }

    async fn write(&self, now: Millis, writes: &[DocWrite]) -> WriteOutcome {
        self.store.write(now, &self.owner, writes).await.unwrap()
    }

    async fn admit(&self, now: Millis, to: &str, event: NewEvent) -> AdmissionOutcome {
        self.admit_with(now, to, Some(event), Some(ask())).await
    }

    /// Appends without asking for the lease.
    async fn append(&self, now: Millis, to: &str, event: NewEvent) -> AdmissionOutcome {
        self.admit_with(now, to, Some(event), None).await
    }

    async fn wake(&self, now: Millis, to: &str) -> LeaseOutcome {
        self.admit_with(now, to, None, Some(ask())).await.lease
    }

    async fn admit_with(
        &self,
        now: Millis,
        to: &str,
        event: Option<NewEvent>,
        lease: Option<LeaseRequest>,
    ) -> AdmissionOutcome {
        let request = Admit { owner: self.owner.clone(), session: session(to), event, lease };
        self.store.admit(now, &request).await.unwrap()
    }

    /// Admits `event` to session `main` and takes the lease.
    async fn run(&self, now: Millis, event: NewEvent) -> Grant {
        granted(self.admit(now, "main", event).await)
    }

    async fn commit(&self, now: Millis, grant: &Grant, commit: &Commit) -> CommitOutcome {
        self.store.commit(now, &grant.lease, commit).await.unwrap()
    }

    /// Commits a turn that consumes everything, and gives the lease back.
    async fn done(&self, now: Millis, grant: &Grant) {
        let done = self.commit(now, grant, &last_turn(grant)).await;
        assert!(matches!(done, CommitOutcome::Done(Continuation::Released { .. })), "{done:?}");
    }

    async fn facts(&self, name: &str) -> SessionFacts {
        let all = self.store.sessions(&self.owner, None, None, 100).await.unwrap();
        all.into_iter().find(|f| f.key == session(name)).unwrap_or_else(|| panic!("no session `{name}`"))
    }

    async fn due(&self, name: &str) -> Option<Millis> {
        self.facts(name).await.due
    }

    /// Keys of a session's mailbox, in order.
    async fn mailbox(&self, name: &str) -> Vec<String> {
        self.facts(name).await.mailbox.into_iter().map(|e| e.key).collect()
    }

    async fn doc(&self, key: &str) -> Doc {
        self.store.read(&self.owner, &[key.to_owned()]).await.unwrap().remove(0)
    }

    async fn text(&self, key: &str) -> Option<String> {
        self.doc(key).await.value.map(|v| String::from_utf8(v.to_vec()).unwrap())
    }

    async fn status(&self, id: &str) -> Option<JobStatus> {
        let doc = self.doc(&keys::job_status(&job(id))).await;
        doc.value.map(|v| keys::decode_status(&v).unwrap().0)
    }

    async fn result(&self, id: &str) -> Option<String> {
        self.text(&keys::job_result(&job(id))).await
    }

    /// A sweep finds nothing, but for a time to look again.
    async fn nothing_is_due(&self, now: Millis) {
        let swept = self.sweep(now).await;
        assert_eq!(swept, SweepResult { next: swept.next, ..SweepResult::default() });
    }

    async fn sweep(&self, now: Millis) -> SweepResult {
        self.store.sweep(now, &self.owner, GRACE, 100).await.unwrap()
    }

    /// Ids of unpublished messages, wakes aside, sorted.
    async fn outbox(&self) -> Vec<String> {
        let entries = self.store.outbox(&self.owner).await.unwrap();
        let mut ids: Vec<_> = entries.into_iter().filter(|e| woken(e).is_none()).map(|e| e.id).collect();
        ids.sort();
        ids
    }

    /// Sessions that wakes in the outbox are for, sorted; publishes them.
    async fn take_wakes(&self) -> Vec<String> {
        let entries = self.store.outbox(&self.owner).await.unwrap();
        let wakes: Vec<_> = entries.iter().filter_map(|e| Some((e.id.clone(), woken(e)?))).collect();
        let ids: Vec<_> = wakes.iter().map(|(id, _)| id.clone()).collect();
        self.store.remove_published(&self.owner, &ids).await.unwrap();
        let mut sessions: Vec<_> = wakes.into_iter().map(|(_, session)| session).collect();
        sessions.sort();
        sessions.dedup();
        sessions
    }

    /// Sessions that a sweep wakes, by its answer or through the outbox, sorted.
    async fn swept_wakes(&self, now: Millis) -> Vec<String> {
        let swept = self.sweep(now).await;
        let mut sessions = self.take_wakes().await;
        sessions.extend(swept.due.iter().map(|key| key.session.as_str().to_owned()));
        sessions.sort();
        sessions.dedup();
        sessions
    }
}

/// The session that a message wakes.
fn woken(entry: &OutboxEntry) -> Option<String> {
    let message: BusMessage = serde_json::from_slice(&entry.message).ok()?;
    let MessageAddress::In { kind: InboundKind::Wake, .. } = message.to else { return None };
    Some(message.body["session"].as_str()?.to_owned())
}

/// A dead letter's result.
fn is_dead(result: &str) -> bool {
    let result: JobResult = serde_json::from_str(result).unwrap();
    result.status == JobStatus::Failed && result.error_code == Some(ErrorCode::Dead) && result.error.is_some()
}
