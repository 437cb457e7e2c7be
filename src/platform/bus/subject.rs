//! Subjects: the conversion of addresses to NATS subjects and back.
//!
//! | address | subject |
//! |---|---|
//! | [`MessageAddress::In`] | `<prefix>.in.<tenant>.<user>.<agent>.<kind>` |
//! | [`MessageAddress::In`] of a partition | `<prefix>.part.<n>.<tenant>.<user>.<agent>.<kind>` |
//! | [`MessageAddress::Out`] | `<prefix>.out.<tenant>.<user>.<agent>.<job>` |
//! | [`MessageAddress::Event`] | `<prefix>.events.<tenant>.<user>.<agent>.<kind>` |
//! | [`MessageAddress::Job`] | `<prefix>.jobs.<queue>` |
//! | [`MessageAddress::Reply`] | as given |
//! | [`Witness`](super::Witness) | `<prefix>.epoch` |
//! | [`Journal`](crate::store::journaled::Journal) | `<prefix>.journal`, `<prefix>.protection.<tenant>.<user>.<name>` |
//! | [`Alarm`](super::Alarm) | `<prefix>.sched.<tenant>.<user>.<timer>` |
//! | [`RingingAlarm`](super::RingingAlarm) | `<prefix>.due.<tenant>.<user>.<timer>` |
//! | [`LiveSubject::Job`] | `<prefix>.live.<job>` |
//! | [`LiveSubject::Control`] | `<prefix>.ctl.<tenant>.<user>` |
//! | [`Signal`](super::Signal) | `<prefix>.ctl.>` |
//! | [`DirectSubmission`](super::DirectSubmission) | `<prefix>.do.<tenant>.<user>.<agent>.<kind>` |
//! | [`JobQuestion`](super::JobQuestion) | `<prefix>.ask.<tenant>.<user>` |
//!
//! Names are percent-encoded, so that a dot or a wildcard in one can't reach another's subject.

mod alarms;
mod direct;

pub use alarms::{all_due, all_scheduled, future_alarm, parse_due, ringing_alarm};
pub use direct::{all_direct, direct, parse_direct};

use super::{BusMessage, CompletedJob, InboundKind, LiveSubject, MessageAddress};
use crate::domain::ids::{AgentId, JobId, Owner, OwnerPart, decode_token, encode_token};
use serde_json::Value;

/// Why a subject is no inbound address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("illegal subject `{subject}`: expected `{prefix}.{verb}.<tenant>.<user>.<agent>.<kind>`, {reason}")]
pub struct SubjectError {
    /// The subject as it was received.
    pub subject: String,
    /// The configured prefix.
    pub prefix: String,
    /// The token after the prefix: `in` or `do`.
    pub verb: &'static str,
    /// Which part is wrong, and how.
    pub reason: String,
    /// Whether only the kind is wrong.
    pub is_of_kind: bool,
}

/// Returns the subject of an address.
pub fn for_address(prefix: &str, to: &MessageAddress) -> String {
    match to {
        MessageAddress::In { owner, agent, kind } => inbound_subject(prefix, None, owner, agent, *kind),
        MessageAddress::Out { owner, agent, job } => {
            format!("{prefix}.out.{}.{}.{}", owner_tokens(owner), agent.token(), encode_token(job))
        }
        MessageAddress::Event { owner, agent, kind } => {
            format!("{prefix}.events.{}.{}.{}", owner_tokens(owner), agent.token(), kind.as_str())
        }
        MessageAddress::Job { queue, .. } => format!("{prefix}.jobs.{}", queue.token()),
        MessageAddress::Reply(subject) => subject.clone(),
    }
}

/// Returns the subject of messages that may be lost.
pub fn live_subject(prefix: &str, live: &LiveSubject) -> String {
    match live {
        LiveSubject::Job(job) => format!("{prefix}.live.{job}"),
        LiveSubject::Control(owner) => format!("{prefix}.ctl.{}", owner_tokens(owner)),
        LiveSubject::Reply(subject) => subject.clone(),
    }
}

/// Returns the subject of a job's completion, with a wildcard for its agent.
pub fn completion_pattern(prefix: &str, owner: &Owner, job: &JobId) -> String {
    format!("{prefix}.out.{}.*.{job}", owner_tokens(owner))
}

/// Returns the pattern of the control subjects of all owners.
pub fn all_control(prefix: &str) -> String {
    format!("{prefix}.ctl.>")
}

/// Returns the subject of an owner's questions.
pub fn question(prefix: &str, owner: &Owner) -> String {
    format!("{prefix}.ask.{}", owner_tokens(owner))
}

/// Returns the pattern of the questions of all owners.
pub fn all_questions(prefix: &str) -> String {
    format!("{prefix}.ask.>")
}

/// Returns the owner in a subject of questions.
pub fn parse_question(prefix: &str, subject: &str) -> Option<Owner> {
    parse_owner(subject.strip_prefix(prefix)?.strip_prefix(".ask.")?)
}

/// Returns the owner in a control subject.
pub fn parse_control(prefix: &str, subject: &str) -> Option<Owner> {
    parse_owner(subject.strip_prefix(prefix)?.strip_prefix(".ctl.")?)
}

/// Returns the owner that two tokens name.
fn parse_owner(tokens: &str) -> Option<Owner> {
    let tokens: Vec<&str> = tokens.split('.').collect();
    let [tenant, user] = tokens[..] else { return None };
    let part = |token: &str| OwnerPart::new(decode(token)?).ok();
    Some(Owner::new(part(tenant)?, part(user)?))
}

/// Returns the pattern of all subjects of live text.
pub fn all_live(prefix: &str) -> String {
    format!("{prefix}.live.>")
}

/// Returns the body of a job for an external worker with the subjects that the worker needs: `answer` for its results,
/// and `control` for cancellations. `None`: the body stays as it is.
pub fn worker_body(prefix: &str, message: &BusMessage) -> Option<Value> {
    let MessageAddress::Job { owner, agent, .. } = &message.to else { return None };
    let answer = MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind: InboundKind::Result };
    let mut body = message.body.clone();
    body["answer"] = for_address(prefix, &answer).into();
    body["control"] = live_subject(prefix, &LiveSubject::Control(owner.clone())).into();
    Some(body)
}

/// Returns the valid inbound subjects, of a partition or of the first stream, one for each kind: the stream stores no
/// others, so that a misspelt one isn't acknowledged.
pub fn inbound_patterns(prefix: &str, part: Option<usize>) -> Vec<String> {
    let head = inbound_head(prefix, part);
    KINDS.into_iter().map(|kind| format!("{head}.*.*.*.{}", kind_token(kind))).collect()
}

/// Returns the start of every inbound subject.
fn inbound_head(prefix: &str, part: Option<usize>) -> String {
    part.map_or_else(|| format!("{prefix}.in"), |part| format!("{prefix}.part.{part}"))
}

fn inbound_subject(prefix: &str, part: Option<usize>, owner: &Owner, agent: &AgentId, kind: InboundKind) -> String {
    format!("{}.{}.{}.{}", inbound_head(prefix, part), owner_tokens(owner), agent.token(), kind_token(kind))
}

/// Returns the subject of a message for an owner that is spread over so many partitions.
pub fn partition_subject(prefix: &str, partitions: usize, owner: &Owner, agent: &AgentId, kind: InboundKind) -> String {
    let part = partition_of(partitions, &owner.tenant().token(), &owner.user().token());
    inbound_subject(prefix, Some(part), owner, agent, kind)
}

/// Returns the configuration by which a NATS server spreads what others publish.
pub fn server_mapping(prefix: &str, partitions: usize) -> String {
    format!(
        "mappings = {{ \"{prefix}.in.*.*.*.*\": \"{prefix}.part.{{{{partition({partitions},1,2)}}}}.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}.{{{{wildcard(3)}}}}.{{{{wildcard(4)}}}}\" }}"
    )
}

/// Returns the partition of an owner with these tokens, as a NATS server's `partition(n,1,2)`: FNV-1a over both.
pub fn partition_of(partitions: usize, tenant: &str, user: &str) -> usize {
    let hash = tenant
        .bytes()
        .chain(user.bytes())
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    hash as usize % partitions.max(1)
}

/// Returns the subjects for a stream that has those in `there`: this build's own, and those of a newer build, which are
/// under the venue's prefix and match no message of the own ones. A subject that includes some of the own ones is an
/// older build's.
pub fn merge_subjects(prefix: &str, own: &[String], there: &[String]) -> Vec<String> {
    let venues = format!("{prefix}.");
    let is_newer = |subject: &&String| {
        subject.starts_with(&venues) && !own.iter().any(|own| have_common(own.split('.'), subject.split('.')))
    };
    let all: Vec<_> = own.iter().chain(there.iter().filter(is_newer)).cloned().collect();
    let has_all = all.len() == there.len() && all.iter().all(|subject| there.contains(subject));
    if has_all { there.to_vec() } else { all }
}

/// Whether a message can match both subjects, which may have wildcards.
fn have_common<'s>(mut one: impl Iterator<Item = &'s str>, mut other: impl Iterator<Item = &'s str>) -> bool {
    loop {
        match (one.next(), other.next()) {
            (None, None) | (Some(">"), Some(_)) | (Some(_), Some(">")) => return true,
            (Some(a), Some(b)) if a == b || a == "*" || b == "*" => {}
            (_, _) => return false,
        }
    }
}

/// Returns the pattern of all subjects that begin as inbound ones, of a partition or of the first stream.
pub fn all_inbound(prefix: &str, part: Option<usize>) -> String {
    format!("{}.>", inbound_head(prefix, part))
}

/// Returns the pattern of all inbound subjects of one owner.
pub fn all_inbound_of(prefix: &str, part: Option<usize>, owner: &Owner) -> String {
    format!("{}.{}.>", inbound_head(prefix, part), owner_tokens(owner))
}

/// Returns the pattern of all subjects of jobs for external workers.
pub fn all_jobs(prefix: &str) -> String {
    format!("{prefix}.jobs.>")
}

/// Returns the pattern of all outbound subjects.
pub fn all_outbound(prefix: &str) -> String {
    format!("{prefix}.out.>")
}

/// Returns the pattern of all subjects of notifications.
pub fn all_events(prefix: &str) -> String {
    format!("{prefix}.events.>")
}

/// Returns the subject of the store's epoch.
pub fn epoch(prefix: &str) -> String {
    format!("{prefix}.epoch")
}

/// Returns the subject of batches of the journal.
pub fn journal(prefix: &str) -> String {
    format!("{prefix}.journal")
}

/// Returns the subject of the newest record of one protected thing.
pub fn protection(prefix: &str, owner: &Owner, name: &str) -> String {
    format!("{prefix}.protection.{}.{name}", owner_tokens(owner))
}

/// Returns the pattern of the records with this name of all owners.
pub fn protections_named(prefix: &str, name: &str) -> String {
    format!("{prefix}.protection.*.*.{name}")
}

/// Returns the pattern of all such records.
pub fn all_protections(prefix: &str) -> String {
    format!("{prefix}.protection.>")
}

/// Returns owner, agent and job of a completion's subject; `None` if it names no job.
pub fn parse_outbound(prefix: &str, subject: &str) -> Option<CompletedJob> {
    let tokens: Vec<&str> = subject.strip_prefix(prefix)?.strip_prefix(".out.")?.split('.').collect();
    let [tenant, user, agent, job] = tokens[..] else { return None };
    let part = |token: &str| OwnerPart::new(decode(token)?).ok();
    let owner = Owner::new(part(tenant)?, part(user)?);
    Some(CompletedJob { owner, agent: AgentId::new(decode(agent)?).ok()?, job: JobId::new(job).ok()? })
}

/// Returns what follows `in` in an inbound subject, or the number of its partition.
fn strip_inbound_head<'s>(prefix: &str, subject: &'s str) -> Option<&'s str> {
    let rest = subject.strip_prefix(prefix)?;
    let of_part = || {
        let (part, rest) = rest.strip_prefix(".part.")?.split_once('.')?;
        part.parse::<usize>().is_ok().then_some(rest)
    };
    rest.strip_prefix(".in.").or_else(of_part)
}

/// Parses owner, agent and kind of an inbound subject, also of a partition.
pub fn parse_inbound(prefix: &str, subject: &str) -> Result<(Owner, AgentId, InboundKind), SubjectError> {
    parse_place(prefix, "in", subject, strip_inbound_head(prefix, subject))
}

/// Parses what follows the token `verb` in a subject.
fn parse_place(
    prefix: &str,
    verb: &'static str,
    subject: &str,
    rest: Option<&str>,
) -> Result<(Owner, AgentId, InboundKind), SubjectError> {
    let bad = |reason: String| {
        let (subject, prefix) = (subject.to_owned(), prefix.to_owned());
        SubjectError { subject, prefix, verb, reason, is_of_kind: false }
    };
    let tokens: Vec<&str> = rest.ok_or_else(|| bad("got another prefix".to_owned()))?.split('.').collect();
    let [tenant, user, agent, kind] = tokens[..] else {
        return Err(bad(format!("got {} tokens after `{verb}`", tokens.len())));
    };
    let name = |token: &str| decode(token).ok_or_else(|| bad(format!("`{token}` is not percent-encoded text")));
    let legal = |error: crate::domain::ids::IdError| bad(format!("got an {error}"));
    let owner = Owner::new(OwnerPart::new(name(tenant)?).map_err(legal)?, OwnerPart::new(name(user)?).map_err(legal)?);
    let agent = AgentId::new(name(agent)?).map_err(legal)?;
    let unknown = || SubjectError { is_of_kind: true, ..bad(format!("got the kind `{kind}`")) };
    let kind = parse_kind(kind).ok_or_else(unknown)?;
    Ok((owner, agent, kind))
}

/// Decodes a token. A producer that publishes by hand doesn't know the encoding: what needs none is accepted as it is.
fn decode(token: &str) -> Option<String> {
    if token.contains('%') { decode_token(token) } else { Some(token.to_owned()) }
}

fn owner_tokens(owner: &Owner) -> String {
    format!("{}.{}", owner.tenant().token(), owner.user().token())
}

const fn kind_token(kind: InboundKind) -> &'static str {
    match kind {
        InboundKind::Task => "task",
        InboundKind::Message => "message",
        InboundKind::Result => "result",
        InboundKind::Cancel => "cancel",
        InboundKind::Pause => "pause",
        InboundKind::Resume => "resume",
        InboundKind::Decide => "decide",
        InboundKind::Wake => "wake",
    }
}

const KINDS: [InboundKind; 8] = [
    InboundKind::Task,
    InboundKind::Message,
    InboundKind::Result,
    InboundKind::Cancel,
    InboundKind::Pause,
    InboundKind::Resume,
    InboundKind::Decide,
    InboundKind::Wake,
];

fn parse_kind(token: &str) -> Option<InboundKind> {
    KINDS.into_iter().find(|kind| kind_token(*kind) == token)
}

/// Returns the owner of a subject with other errors, if it can be read.
pub fn owner_of(prefix: &str, subject: &str) -> Option<Owner> {
    let mut tokens = strip_inbound_head(prefix, subject)?.split('.');
    let mut part = || OwnerPart::new(decode(tokens.next()?)?).ok();
    Some(Owner::new(part()?, part()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::notification::NotificationKind;

    fn owner(text: &str) -> Owner {
        text.parse().unwrap()
    }

    #[test]
    fn a_control_subject_has_an_owner_and_nothing_else() {
        let o = owner("acme/jo@x.org");
        let subject = live_subject("p", &LiveSubject::Control(o.clone()));
        assert_eq!(parse_control("p", &subject), Some(o));
        for other in ["p.ctl.acme", "p.ctl.acme.jo.x", "q.ctl.acme.jo", "p.ctl.acme.%zz", "p.live.acme.jo"] {
            assert_eq!(parse_control("p", other), None, "{other}");
        }
    }

    #[test]
    fn addresses_become_subjects() {
        let agent = AgentId::new("a.b*").unwrap();
        let job = JobId::new("0123456789abcdef0123456789abcdef").unwrap();
        let o = owner("acme/jo@x.org");
        let address = |kind| MessageAddress::In { owner: o.clone(), agent: agent.clone(), kind };
        for (got, expected) in [
            (for_address("trellis", &address(InboundKind::Task)), "trellis.in.acme.jo@x%2Eorg.a%2Eb%2A.task"),
            (for_address("t2", &address(InboundKind::Wake)), "t2.in.acme.jo@x%2Eorg.a%2Eb%2A.wake"),
            (
                for_address(
                    "trellis",
                    &MessageAddress::Out { owner: o.clone(), agent: agent.clone(), job: "e 1".to_owned() },
                ),
                "trellis.out.acme.jo@x%2Eorg.a%2Eb%2A.e%201",
            ),
            (
                for_address(
                    "trellis",
                    &MessageAddress::Job { queue: "ocr.*".parse().unwrap(), owner: o.clone(), agent: agent.clone() },
                ),
                "trellis.jobs.ocr%2E%2A",
            ),
            (
                for_address(
                    "trellis",
                    &MessageAddress::Event {
                        owner: o.clone(),
                        agent: agent.clone(),
                        kind: NotificationKind::ApprovalAsked,
                    },
                ),
                "trellis.events.acme.jo@x%2Eorg.a%2Eb%2A.approval-asked",
            ),
            (for_address("trellis", &MessageAddress::Reply("_INBOX.x".to_owned())), "_INBOX.x"),
            (live_subject("trellis", &LiveSubject::Job(job.clone())), "trellis.live.0123456789abcdef0123456789abcdef"),
            (live_subject("trellis", &LiveSubject::Control(o.clone())), "trellis.ctl.acme.jo@x%2Eorg"),
            (completion_pattern("trellis", &o, &job), "trellis.out.acme.jo@x%2Eorg.*.0123456789abcdef0123456789abcdef"),
            (all_control("trellis"), "trellis.ctl.>"),
            (all_inbound("p", None), "p.in.>"),
            (all_inbound("p", Some(3)), "p.part.3.>"),
            (inbound_patterns("p", None)[0].clone(), "p.in.*.*.*.task"),
            (inbound_patterns("p", Some(3))[0].clone(), "p.part.3.*.*.*.task"),
            (all_outbound("p"), "p.out.>"),
            (all_events("p"), "p.events.>"),
            (all_jobs("p"), "p.jobs.>"),
        ] {
            assert_eq!(got, expected);
        }
    }

    #[test]
    fn unknown_subjects_are_kept_only_after_a_newer_build() {
        let own: Vec<_> = ["p.in.*.task", "p.in.*.wake"].map(str::to_owned).into();
        for (there, expected) in [
            (&["p.in.*.task", "p.in.*.wake"][..], &["p.in.*.task", "p.in.*.wake"][..]),
            (&[], &["p.in.*.task", "p.in.*.wake"]),
            (&["p.in.*.task"], &["p.in.*.task", "p.in.*.wake"]),
            // As a newer build has put them.
            (&["p.in.*.fork", "p.in.*.wake", "p.in.*.task"], &["p.in.*.fork", "p.in.*.wake", "p.in.*.task"]),
            (&["p.in.*.fork", "p.in.*.task"], &["p.in.*.task", "p.in.*.wake", "p.in.*.fork"]),
            (&["p.in.*.*.fork", "p.more.>"], &["p.in.*.task", "p.in.*.wake", "p.in.*.*.fork", "p.more.>"]),
            // As an older build, or somebody by hand.
            (&["p.in.>"], &["p.in.*.task", "p.in.*.wake"]),
            (&["p.in.acme.*"], &["p.in.*.task", "p.in.*.wake"]),
            (&["p.*.>", "p.in.*.*", ">", "q.in.*.fork"], &["p.in.*.task", "p.in.*.wake"]),
        ] {
            let there: Vec<_> = there.iter().map(|&subject| subject.to_owned()).collect();
            assert_eq!(merge_subjects("p", &own, &there), expected, "{there:?}");
        }
    }

    #[test]
    fn a_job_for_an_external_worker_says_where_its_answers_go() {
        let to =
            MessageAddress::Job { queue: "ocr".parse().unwrap(), owner: owner("acme/jo"), agent: "a".parse().unwrap() };
        let message = BusMessage { to, id: None, body: serde_json::json!({"job": "x"}), trace: None };
        let told = worker_body("p", &message).unwrap();
        let expected = r#"{"job":"x","answer":"p.in.acme.jo.a.result","control":"p.ctl.acme.jo"}"#;
        assert_eq!(told.to_string(), expected);
        let to = MessageAddress::Reply("_INBOX.x".to_owned());
        assert_eq!(super::worker_body("p", &BusMessage { to, ..message }), None);
    }

    #[test]
    fn inbound_subjects_round_trip() {
        for (o, a) in [("acme/jo", "helper"), ("a.b/c>d", "ünï*"), ("100%/x", "%41")] {
            for kind in KINDS {
                let (owner, agent) = (owner(o), AgentId::new(a).unwrap());
                let text = for_address("p", &MessageAddress::In { owner: owner.clone(), agent: agent.clone(), kind });
                assert_eq!(parse_inbound("p", &text).unwrap(), (owner.clone(), agent.clone(), kind), "{text}");
                let text = partition_subject("p", 7, &owner, &agent, kind);
                assert_eq!(parse_inbound("p", &text).unwrap(), (owner, agent, kind), "{text}");
            }
        }
    }

    #[test]
    fn subjects_of_completions_name_their_job() {
        let job = JobId::new("0123456789abcdef0123456789abcdef").unwrap();
        let (owner, agent) = (owner("a.b/c>d"), AgentId::new("ünï*").unwrap());
        let to = MessageAddress::Out { owner: owner.clone(), agent: agent.clone(), job: job.to_string() };
        assert_eq!(parse_outbound("p", &for_address("p", &to)), Some(CompletedJob { owner, agent, job }));
        for text in ["p.out.t.u.a.my-task", "p.out.t.u.a", "p.in.t.u.a.0123456789abcdef0123456789abcdef"] {
            assert_eq!(parse_outbound("p", text), None, "{text}");
        }
    }

    #[test]
    fn text_that_needs_no_encoding_is_taken_as_it_is() {
        let (owner, agent, _) = parse_inbound("p", "p.in.büro.jo!.a~b.task").unwrap();
        assert_eq!((owner.to_string().as_str(), agent.as_str()), ("büro/jo!", "a~b"));
    }

    #[test]
    fn the_owner_is_read_from_a_partly_wrong_subject() {
        for (text, expected) in [
            ("p.in.t.u.%ff.task", Some("t/u")),
            ("p.in.t.u", Some("t/u")),
            ("p.in.t.%ff.a.task", None),
            ("p.in.t", None),
            ("p.part.3.t.u.a", Some("t/u")),
            ("p.part.x.t.u.a", None),
            ("q.in.t.u.a.task", None),
        ] {
            assert_eq!(owner_of("p", text).map(|owner| owner.to_string()).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn subjects_of_other_forms_are_refused_with_the_reason() {
        for (text, reason) in [
            ("q.in.t.u.a.task", "got another prefix"),
            ("p.out.t.u.a.task", "got another prefix"),
            ("p.part.t.u.a.task", "got another prefix"),
            ("p.part.1.t.u.task", "got 3 tokens after `in`"),
            ("p.in.t.u.task", "got 3 tokens after `in`"),
            ("p.in.t.u.a.b.task", "got 5 tokens after `in`"),
            ("p.in.t.u.a.tusk", "got the kind `tusk`"),
            ("p.in.t%2.u.a.task", "`t%2` is not percent-encoded text"),
            ("p.in.t%2Fx.u.a.task", "got an illegal owner part `t/x`: `/` is not allowed"),
            ("p.in.t..a.task", "got an illegal owner part ``: expected at least one character"),
        ] {
            assert_eq!(parse_inbound("p", text).unwrap_err().reason, reason, "{text}");
        }
    }
}
