//! Retention: the records of an owner that are purged, and those that stay at any age.

use crate::approval::Approval;
use crate::context::record::manifest::stretch_start;
use crate::job::JobStatus;
use crate::limits::TURNS_KEPT;
use crate::session::SessionState;
use crate::time::Millis;
use std::time::Duration;

const DAY: Duration = Duration::from_hours(24);

/// Retention by kind; `None` = for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionRules {
    /// Retention of jobs after their end.
    pub jobs: Option<Duration>,
    /// Retention of turns after their end, and of sessions after they were last touched.
    pub turns: Option<Duration>,
}

impl RetentionRules {
    /// Rules under which everything is kept.
    pub const NEVER: Self = Self { jobs: None, turns: None };

    /// Whether everything is kept.
    pub fn is_never(self) -> bool {
        self == Self::NEVER
    }

    /// Returns the delay of a purge that is allowed: a tenth of the shortest retention, between `least` and `most`.
    pub fn slack(self, least: Duration, most: Duration) -> Duration {
        self.jobs.into_iter().chain(self.turns).min().map_or(most, |kept| (kept / 10).clamp(least, most))
    }
}

impl Default for RetentionRules {
    fn default() -> Self {
        Self { jobs: Some(DAY * 30), turns: Some(DAY * 90) }
    }
}

/// Whether the retention of something that ended at `at` is over.
fn is_expired(age: Option<Duration>, at: Millis, now: Millis) -> bool {
    age.is_some_and(|age| at.plus(age) <= now)
}

/// Returns the time after which no job with ended retention can have been opened.
pub fn job_horizon(rules: RetentionRules, now: Millis) -> Option<Millis> {
    let age = u64::try_from(rules.jobs?.as_millis()).unwrap_or(u64::MAX);
    now.0.checked_sub(age).map(Millis)
}

/// Facts of a job that retention needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetainedJob {
    /// Status of the job.
    pub status: JobStatus,
    /// Time of the last change of the status.
    pub updated: Millis,
    /// Whether a dead letter of it waits to be redriven.
    pub dead: bool,
    /// Whether a job that it started has not ended, or a timer that it set will still fire: they spend from its
    /// accounts.
    pub is_charged: bool,
    /// Whether its task is still in a mailbox: without the job it would count as open.
    pub in_mailbox: bool,
}

/// Whether a job is purged.
pub fn is_job_due(rules: RetentionRules, now: Millis, job: &RetainedJob) -> bool {
    job.status.is_terminal()
        && is_expired(rules.jobs, job.updated, now)
        && !job.dead
        && !job.is_charged
        && !job.in_mailbox
}

/// Facts of a session that retention needs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SessionView {
    /// Number of turns committed.
    pub version: u64,
    /// Time of the last append or commit.
    pub touched: Millis,
    /// Whether it has events, a lease or a due time.
    pub is_busy: bool,
    /// State of the session.
    pub state: SessionState,
}

/// Part of a session that is purged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionFate {
    /// Turns below this number, where they are old enough.
    Turns {
        /// First turn that stays; it begins a stretch of manifests.
        below: u64,
    },
    /// The whole session.
    Whole,
}

/// Returns the part of a session that is purged; `None` = nothing. An idle session that was not touched for the
/// retention of turns is purged whole. Any other keeps its newest turns, and those of its current work.
pub fn session_fate(rules: RetentionRules, now: Millis, session: &SessionView) -> Option<SessionFate> {
    rules.turns?;
    let state = &session.state;
    // Tasks and messages stay in the mailbox until they are finished; the state of a session without events may still
    // name ended ones. Only a job that was started for a message is awaited without an event.
    let awaits = state.pending.values().any(|pending| pending.under.is_some());
    if !session.is_busy && !awaits && is_expired(rules.turns, session.touched, now) {
        return Some(SessionFate::Whole);
    }
    let of_task = state.task.as_ref().map_or(0, |task| u64::from(task.turns));
    let newest = session.version.saturating_sub(TURNS_KEPT.max(of_task)) + 1;
    let asked = state.awaiting.as_ref().map(|awaiting| awaiting.turn);
    let opened = state.goals.frames.iter().map(|frame| frame.turn);
    let first = opened.chain(asked).min().map_or(newest, |first| first.min(newest));
    let below = stretch_start(first);
    (below > 1).then_some(SessionFate::Turns { below })
}

/// Whether the retention of a turn that ended at `end` is over.
pub fn is_turn_due(rules: RetentionRules, now: Millis, end: Millis) -> bool {
    is_expired(rules.turns, end, now)
}

/// State of the job for which an approval was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalJobState {
    /// The job exists.
    Kept,
    /// The job was purged.
    Gone,
    /// There was no job, and the session doesn't wait for the answer.
    Nobody,
    /// There was no job, and the session waits for the answer.
    Session,
}

/// Whether a closed approval is past its retention, and its job is gone.
pub fn is_approval_due(rules: RetentionRules, now: Millis, approval: &Approval, asking: ApprovalJobState) -> bool {
    let closed = approval.answer.as_ref().map_or(approval.expires, |answer| answer.at);
    is_expired(rules.jobs, closed, now)
        && match asking {
            ApprovalJobState::Gone | ApprovalJobState::Nobody => true,
            ApprovalJobState::Kept | ApprovalJobState::Session => false,
        }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::approval::AwaitingCalls;
    use crate::authority::Authority;
    use crate::event::Mandate;
    use crate::goal::{GoalFrame, LiveTurns};
    use crate::ids::JobId;
    use crate::session::{PendingJob, TaskProgress};

    const NOW: Millis = Millis(1_000 * 86_400_000);

    fn days(days: u64) -> Millis {
        Millis(NOW.0 - days * 86_400_000)
    }

    fn job(status: JobStatus, ended: u64) -> RetainedJob {
        RetainedJob { status, updated: days(ended), dead: false, is_charged: false, in_mailbox: false }
    }

    #[test]
    fn a_job_goes_some_time_after_its_end_and_never_before() {
        let rules = RetentionRules::default();
        for status in JobStatus::ALL {
            assert!(!is_job_due(rules, NOW, &job(status, 29)), "{status:?}");
            assert_eq!(is_job_due(rules, NOW, &job(status, 30)), status.is_terminal(), "{status:?}");
            assert!(!is_job_due(RetentionRules::NEVER, NOW, &job(status, 900)), "{status:?}");
        }
        let old = job(JobStatus::Failed, 900);
        for stays in [
            RetainedJob { dead: true, ..old },
            RetainedJob { is_charged: true, ..old },
            RetainedJob { in_mailbox: true, ..old },
        ] {
            assert!(!is_job_due(rules, NOW, &stays), "{stays:?}");
        }
        assert_eq!(job_horizon(rules, NOW), Some(days(30)));
        assert_eq!(job_horizon(rules, Millis(5)), None, "before anything can be so old");
        assert_eq!(job_horizon(RetentionRules::NEVER, NOW), None);
    }

    fn session(version: u64, touched: u64) -> SessionView {
        SessionView { version, touched: days(touched), ..SessionView::default() }
    }

    fn id() -> JobId {
        JobId::new(&"0f".repeat(16)).unwrap()
    }

    fn state(change: impl FnOnce(&mut SessionState)) -> SessionState {
        let mut state = SessionState::default();
        change(&mut state);
        state
    }

    fn awaiting(turn: u64) -> SessionState {
        let awaiting =
            AwaitingCalls { turn, job: None, authority: Authority::default(), all_started: false, calls: vec![] };
        state(|state| state.awaiting = Some(awaiting))
    }

    #[test]
    fn an_untouched_idle_session_is_deleted_whole() {
        let rules = RetentionRules::default();
        let fate = |session: &SessionView| session_fate(rules, NOW, session);
        assert_eq!(fate(&session(7, 90)), Some(SessionFate::Whole));
        assert_eq!(fate(&session(0, 90)), Some(SessionFate::Whole), "it never had a turn");
        assert_eq!(fate(&session(7, 89)), None);
        assert_eq!(session_fate(RetentionRules { turns: None, ..rules }, NOW, &session(700, 900)), None);
        let ended = state(|state| state.task = Some(TaskProgress::new(id())));
        assert_eq!(fate(&SessionView { state: ended, ..session(7, 90) }), Some(SessionFate::Whole), "from outside");
        let child = |under| PendingJob { agent: "b".parse().unwrap(), started: days(900), under, frame: 0 };
        let of_task = state(|state| drop(state.pending.insert(id(), child(None))));
        assert_eq!(fate(&SessionView { state: of_task, ..session(7, 90) }), Some(SessionFate::Whole));
        let of_message = state(|state| drop(state.pending.insert(id(), child(Some(Mandate::default())))));
        for session in
            [SessionView { is_busy: true, ..session(7, 900) }, SessionView { state: of_message, ..session(7, 900) }]
        {
            assert_eq!(fate(&session), None, "{session:?}");
        }
    }

    #[test]
    fn a_living_session_keeps_its_newest_turns_in_whole_stretches() {
        let below = |session: &SessionView| match session_fate(RetentionRules::default(), NOW, session) {
            Some(SessionFate::Turns { below }) => below,
            other => panic!("{other:?}"),
        };
        for (version, first) in [(100, 51), (149, 51), (150, 101), (199, 101), (200, 151), (1_003, 951)] {
            assert_eq!(below(&session(version, 0)), first, "{version}");
            assert!(version + 1 - first >= TURNS_KEPT);
        }
        assert_eq!(session_fate(RetentionRules::default(), NOW, &session(99, 0)), None);
        let long = TaskProgress { turns: 120, ..TaskProgress::new(id()) };
        let long = SessionView { is_busy: true, state: state(|state| state.task = Some(long)), ..session(1_000, 900) };
        assert_eq!(below(&long), 851, "all turns of its task");
        let asks = SessionView { is_busy: true, state: awaiting(310), ..session(1_000, 900) };
        assert_eq!(below(&asks), 301, "the turn whose calls wait");
        let frame = |turn| GoalFrame {
            id: 1,
            parent: 0,
            description: "d".into(),
            turn,
            call: 0,
            output: None,
            loads: Vec::new(),
            live: LiveTurns::default(),
        };
        let goals = state(|state| state.goals.frames = vec![frame(120), frame(700)]);
        assert_eq!(below(&SessionView { state: goals, ..session(1_000, 0) }), 101, "the turn that opened a goal");
    }

    #[test]
    fn a_turn_goes_by_its_age() {
        assert!(is_turn_due(RetentionRules::default(), NOW, days(90)));
        assert!(!is_turn_due(RetentionRules::default(), NOW, days(89)));
        assert!(!is_turn_due(RetentionRules::NEVER, NOW, days(900)));
    }
}
